#include "format/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "format/testing/test_files.h"

namespace dllm {
namespace {

using namespace test;

std::string file_of(const std::string& header, std::size_t data) {
  return u64(header.size()) + header + std::string(data, '\x01');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string object(const std::vector<std::string>& members) { return fmt::format("{{{}}}", fmt::join(members, ",")); }

Expected<Safetensors> parse_safetensors(const std::string& bytes) {
  return Safetensors::parse(MappedFile::wrap(as_bytes(bytes), "test.safetensors"));
}

std::vector<float> values(const SafeTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(element_count(tensor.shape)));
  codec(tensor.type).dequantize(tensor.data.data(), out.data(), element_count(tensor.shape));
  return out;
}

void expect_fixture_tensors(const Safetensors& file) {
  ASSERT_EQ(file.tensors().size(), 4u);
  const std::vector<float> count = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(file.find("matrix")->shape, (Shape{3, 2}));
  EXPECT_EQ(values(*file.find("matrix")), count);
  EXPECT_EQ(file.find("half")->type, TensorType::kF16);
  EXPECT_EQ(values(*file.find("half")), count);
  EXPECT_EQ(file.find("brain")->shape, (Shape{2, 1, 2}));
  EXPECT_EQ(values(*file.find("brain")), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(file.find("scalar")->shape, (Shape{1}));
  EXPECT_EQ(values(*file.find("scalar")), (std::vector<float>{7}));
  EXPECT_EQ(file.find("other"), nullptr);
}

TEST(Safetensors, ReadsFilesOfTheSafetensorsPackage) {
  for (const char* name : {"python.safetensors", "sharded", "sharded/model.safetensors.index.json"}) {
    const auto file = Safetensors::open(fixture(name));
    ASSERT_TRUE(file) << file.error().message();
    expect_fixture_tensors(*file);
  }
}

TEST(Safetensors, ReadsADirectoryWithOneFile) {
  const TempDir dir;
  std::filesystem::copy_file(fixture("python.safetensors"), dir / "model.safetensors");
  const auto file = Safetensors::open(dir / "");
  ASSERT_TRUE(file) << file.error().message();
  expect_fixture_tensors(*file);
}

TEST(Safetensors, ReadsAnEmptyFileOfNoTensors) {
  const auto file = parse_safetensors(file_of("{}", 0));
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(file->tensors().empty());
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string bytes = read_file(fixture("python.safetensors"));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto file = parse_safetensors(cut);
    ASSERT_FALSE(file) << size;
    ASSERT_EQ(file.error().code, ErrorCode::kInvalidFile);
    ASSERT_TRUE(file.error().where.starts_with("test.safetensors, offset 0x")) << file.error().where;
    ASSERT_FALSE(file.error().hint.empty());
  }
}

struct HeaderDamage {
  std::string name;
  std::string bytes;
  ErrorCode code;
  std::vector<std::string> mentions;
};

class DamagedSafetensors : public testing::TestWithParam<HeaderDamage> {};

TEST_P(DamagedSafetensors, IsExplained) {
  const auto file = parse_safetensors(GetParam().bytes);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, GetParam().code) << file.error().message();
  EXPECT_TRUE(file.error().where.starts_with("test.safetensors, offset 0x")) << file.error().where;
  EXPECT_FALSE(file.error().hint.empty()) << file.error().message();
  for (const std::string& part : GetParam().mentions)
    EXPECT_NE(file.error().message().find(part), std::string::npos) << part << " in " << file.error().message();
}

std::vector<HeaderDamage> damages() {
  constexpr auto kInvalidHeader = ErrorCode::kInvalidFile;
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets,
                      std::size_t data = 8) { return file_of(object({entry("x", dtype, shape, offsets)}), data); };
  const std::string good = entry("x", "F32", "[2]", "[0,8]");
  return {
      {"HugeHeader", u64(~std::uint64_t{0}) + "{}", kInvalidHeader, {"header", "0x0"}},
      {"HeaderPastTheEnd", u64(50) + "{}", kInvalidHeader, {"header", "50 bytes"}},
      {"NoJson", file_of("{\"x\":", 0), kInvalidHeader, {"JSON"}},
      {"NoUtf8", file_of("{\"\xff\":1}", 0), kInvalidHeader, {"JSON"}},
      {"NoObject", file_of("[]", 0), kInvalidHeader, {"object"}},
      {"DeepJson", file_of(std::string(1000, '['), 0), kInvalidHeader, {"nested"}},
      {"MetadataNoObject", file_of(R"({"__metadata__":3})", 0), kInvalidHeader, {"__metadata__"}},
      {"DuplicateTensor", file_of(object({good, good}), 8), kInvalidHeader, {"'x'", "twice"}},
      {"DuplicateField",
       file_of(R"({"x":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}})", 8),
       kInvalidHeader,
       {"'dtype'", "twice"}},
      {"TensorNoObject", file_of(R"({"x":[1]})", 0), kInvalidHeader, {"'x'", "dtype"}},
      {"NoDtype", file_of(R"({"x":{"shape":[2],"data_offsets":[0,8]}})", 8), kInvalidHeader, {"'x'", "dtype"}},
      {"OffsetsNotTwo", one("F32", "[2]", "[0,8,9]"), kInvalidHeader, {"'x'", "data_offsets"}},
      {"OffsetsNegative", one("F32", "[2]", "[-8,0]"), kInvalidHeader, {"'x'", "data_offsets"}},
      {"OffsetsFractional", one("F32", "[2]", "[0.5,8]"), kInvalidHeader, {"'x'", "data_offsets"}},
      {"OffsetsReversed", one("F32", "[2]", "[8,0]"), kInvalidHeader, {"'x'", "8 to 0"}},
      {"OffsetsPastTheEnd", one("F32", "[2]", "[0,8]", 7), kInvalidHeader, {"'x'", "0 to 8", "the file has 7"}},
      {"OffsetsHuge", one("F32", "[2]", "[18446744073709551608,18446744073709551615]"), kInvalidHeader, {"'x'"}},
      {"SizeDisagrees", one("F32", "[3]", "[0,8]"), kInvalidHeader, {"'x'", "[3]", "12 bytes", "span 8"}},
      {"DimNegative", one("F32", "[-2]", "[0,8]"), kInvalidHeader, {"'x'", "dimension"}},
      {"DimHuge", one("F32", "[18446744073709551615]", "[0,8]"), kInvalidHeader, {"'x'", "dimension"}},
      {"SizeOfIntegersDisagrees", one("I64", "[2]", "[0,8]"), kInvalidHeader, {"'x'", "16 bytes", "span 8"}},
      {"SizeOfHalfBytesDisagrees", one("F4", "[15]", "[0,8]"), kInvalidHeader, {"'x'", "7 bytes", "span 8"}},
      {"IntegersPastTheEnd", one("I64", "[1]", "[0,8]", 7), kInvalidHeader, {"'x'", "0 to 8", "the file has 7"}},
      {"IntegersOverlap",
       file_of(object({good, entry("y", "I32", "[2]", "[4,12]")}), 12),
       kInvalidHeader,
       {"'y'", "'x'", "overlaps"}},
      {"Overlap",
       file_of(object({good, entry("y", "F32", "[2]", "[4,12]")}), 12),
       kInvalidHeader,
       {"'y'", "'x'", "overlaps"}},
      {"Hole",
       file_of(object({good, entry("y", "F32", "[1]", "[12,16]")}), 16),
       kInvalidHeader,
       {"'y'", "4 bytes before"}},
      {"TrailingBytes", one("F32", "[2]", "[0,8]", 9), kInvalidHeader, {"last 1 bytes"}},
  };
}

INSTANTIATE_TEST_SUITE_P(Safetensors, DamagedSafetensors, testing::ValuesIn(damages()),
                         [](const auto& damage) { return damage.param.name; });

/// A file with tensors of other types opens; the error about such a tensor is kept for callers that need it.
TEST(Safetensors, KeepsApartWhatItDoesNotRead) {
  const std::string bytes = file_of(
      object({entry("counts", "I64", "[2]", "[0,16]"), entry("good", "F32", "[1]", "[16,20]"),
              entry("wide", "F64", "[]", "[20,28]"), entry("none", "F32", "[0]", "[28,28]"),
              entry("deep", "F32", "[1,1,1,1,1]", "[28,32]"), entry("nibbles", "F4", "[3,2]", "[32,35]"),
              entry("gguf", "Q8_0", "[32]", "[35,69]"), entry("huge", "F32", "[4294967296,4294967296]", "[69,69]")}),
      69);
  const auto file = parse_safetensors(bytes);
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_EQ(file->tensors().size(), 1u);
  EXPECT_EQ(values(*file->find("good")), (std::vector<float>{2.36942783e-38f}));
  std::string names;
  for (const UnreadTensor& tensor : file->unread()) {
    names += tensor.name + " ";
    EXPECT_EQ(tensor.why.code, ErrorCode::kUnsupported);
    EXPECT_NE(tensor.why.what.find("'" + tensor.name + "'"), std::string::npos) << tensor.why.message();
    EXPECT_EQ(file->find(tensor.name), nullptr);
  }
  EXPECT_EQ(names, "counts deep gguf huge nibbles none wide ");
  EXPECT_NE(file->unread()[0].why.what.find("'I64'"), std::string::npos);
  EXPECT_NE(file->unread()[1].why.what.find("5 dimensions"), std::string::npos);
  EXPECT_NE(file->unread()[5].why.what.find("[0]"), std::string::npos);
}

TEST(Safetensors, ShardsMayHoldWhatIsNotRead) {
  const TempDir dir;
  ASSERT_TRUE(write_file(dir / "a.safetensors", file_of(object({entry("x", "F32", "[1]", "[0,4]")}), 4)));
  ASSERT_TRUE(write_file(dir / "b.safetensors", file_of(object({entry("ids", "I64", "[1]", "[0,8]")}), 8)));
  const auto open = [&](const std::string& map) {
    EXPECT_TRUE(write_file(dir / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}"));
    return Safetensors::open(dir / "");
  };
  const auto file = open(R"("x":"a.safetensors","ids":"b.safetensors")");
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_EQ(file->unread().size(), 1u);
  EXPECT_EQ(file->unread()[0].name, "ids");
  const auto elsewhere = open(R"("x":"a.safetensors","ids":"a.safetensors","y":"b.safetensors")");
  ASSERT_FALSE(elsewhere);
  EXPECT_NE(elsewhere.error().message().find("'ids'"), std::string::npos);
}

class DamagedIndex : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* shard : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
      std::filesystem::copy_file(fixture("sharded/" + std::string(shard)), dir_ / shard);
  }

  /// Opens the directory with this weight_map and expects an error that contains `reason`.
  void expect_error(const std::string& index, ErrorCode code, const std::string& reason) {
    ASSERT_TRUE(write_file(dir_ / "model.safetensors.index.json", index));
    const auto file = Safetensors::open(dir_ / "");
    ASSERT_FALSE(file) << index;
    EXPECT_EQ(file.error().code, code) << file.error().message();
    EXPECT_NE(file.error().message().find(reason), std::string::npos) << file.error().message();
    EXPECT_NE(file.error().where.find(dir_ / ""), std::string::npos);
  }

  static std::string map(const std::string& entries) { return R"({"weight_map":{)" + entries + "}}"; }
  static constexpr const char* kFirst = R"("matrix":"model-00001-of-00002.safetensors")";
  static constexpr const char* kHalf = R"("half":"model-00001-of-00002.safetensors")";

  TempDir dir_;
};

TEST_F(DamagedIndex, IsExplained) {
  const std::string first = kFirst, half = kHalf;
  expect_error("{", ErrorCode::kInvalidFile, "JSON");
  expect_error("{}", ErrorCode::kInvalidFile, "weight_map");
  expect_error(R"({"weight_map":[]})", ErrorCode::kInvalidFile, "weight_map");
  expect_error(map(""), ErrorCode::kInvalidFile, "empty");
  expect_error(map(R"("matrix":3)"), ErrorCode::kInvalidFile, "'matrix'");
  expect_error(map(R"("matrix":"../secret.safetensors")"), ErrorCode::kInvalidFile, "'../secret.safetensors'");
  expect_error(map(R"("matrix":"..")"), ErrorCode::kInvalidFile, "plain file name");
  expect_error(map(R"("matrix":"")"), ErrorCode::kInvalidFile, "plain file name");
  expect_error(map(first + "," + first), ErrorCode::kInvalidFile, "'matrix' occurs twice");
  expect_error(map(R"("matrix":"missing.safetensors")"), ErrorCode::kIo, "missing.safetensors");
  expect_error(map(first), ErrorCode::kInvalidFile, "'half'");  // in the shard, not in the index
  expect_error(map(first + "," + half + R"(,"x":"model-00001-of-00002.safetensors")"), ErrorCode::kInvalidFile, "'x'");
  // The same tensor in two shards, which an index cannot express.
  std::filesystem::copy_file(fixture("sharded/model-00001-of-00002.safetensors"), dir_ / "copy.safetensors");
  expect_error(map(first + R"(,"half":"copy.safetensors")"), ErrorCode::kInvalidFile, "but the index has it in");
}

TEST(Safetensors, ReportsWhatIsNotThere) {
  const TempDir dir;
  const auto empty = Safetensors::open(dir / "");
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kIo);
  EXPECT_NE(empty.error().message().find("model.safetensors"), std::string::npos);
  const auto missing = Safetensors::open(dir / "missing.safetensors");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace dllm
