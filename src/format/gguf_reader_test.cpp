#include <gtest/gtest.h>

#include <functional>

#include "format/gguf.h"
#include "format/testing/test_files.h"

namespace dllm {
namespace {

using namespace test;

std::string kv(std::string_view key, MetaType type, std::string_view value) {
  return text(key) + u32(static_cast<std::uint32_t>(type)) + std::string(value);
}

std::string array(std::uint32_t element, std::uint64_t count, std::string_view values) {
  return u32(element) + u64(count) + std::string(values);
}

std::string info(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                 std::uint64_t offset) {
  std::string out = text(name) + u32(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) out += u64(dim);
  return out + u32(type) + u64(offset);
}

/// The parts of a small valid file; tests damage one of them.
struct Spec {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t extra_tensors = 0;  ///< claimed in addition to those present
  std::uint64_t extra_keys = 0;
  std::vector<std::string> keys = {
      kv("general.architecture", MetaType::kString, text("llada")),
      kv("llada.block_count", MetaType::kU32, u32(3)),
      kv("tokens", MetaType::kArray, array(8, 2, text("a") + text("bc"))),
  };
  std::vector<std::string> infos = {
      info("x.weight", {4, 2}, 0, 0),       // F32, 32 bytes
      info("y.weight", {32, 1, 1}, 8, 32),  // Q8_0, 34 bytes
  };
  std::string data = std::string(66, '\x01');
  std::uint64_t alignment = 32;

  std::string bytes() const {
    std::string out = magic + u32(version) + u64(infos.size() + extra_tensors) + u64(keys.size() + extra_keys);
    for (const std::string& key : keys) out += key;
    for (const std::string& tensor : infos) out += tensor;
    out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data;
  }
};

Expected<GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(MappedFile::wrap(as_bytes(bytes), "test.gguf"));
}

TEST(GgufReader, ReadsAGoodFile) {
  for (const std::uint32_t version : {2u, 3u}) {
    Spec spec;
    spec.version = version;
    const std::string bytes = spec.bytes();
    const auto file = parse(bytes);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->alignment(), 32u);
    EXPECT_EQ(**file->metadata().string("general.architecture"), "llada");
    EXPECT_EQ(**file->metadata().integer("llada.block_count"), 3);
    EXPECT_EQ(**file->metadata().strings("tokens"), (std::vector<std::string>{"a", "bc"}));
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* tensor = file->find_tensor("y.weight");
    ASSERT_EQ(tensor, &file->tensors()[1]);
    EXPECT_EQ(tensor->type, TensorType::kQ8_0);
    EXPECT_EQ(tensor->shape, (Shape{32, 1, 1}));
    EXPECT_EQ(tensor->data.size(), 34u);
    EXPECT_EQ(tensor->data.data(), as_bytes(bytes).data() + tensor->offset);
    EXPECT_EQ(tensor->offset, bytes.size() - 34);
    EXPECT_EQ(file->find_tensor("z.weight"), nullptr);
  }
}

TEST(GgufReader, AllowsTrailingBytesGapsAndAnyOrder) {
  Spec spec;
  spec.infos = {info("b", {8}, 0, 96), info("a", {8}, 0, 0)};
  spec.data = std::string(96 + 32 + 5, 'x');
  const std::string bytes = spec.bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->find_tensor("b")->offset - file->find_tensor("a")->offset, 96u);
}

TEST(GgufReader, ObeysTheAlignmentKey) {
  Spec spec;
  spec.alignment = 64;
  spec.keys.push_back(kv("general.alignment", MetaType::kU32, u32(64)));
  spec.infos = {info("x", {4, 2}, 0, 64)};
  spec.data = std::string(96, 'x');
  const std::string bytes = spec.bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->tensors()[0].offset, bytes.size() - 32);
}

TEST(GgufReader, ReadsAFileWithoutTensors) {
  Spec spec;
  spec.infos.clear();
  spec.data.clear();
  std::string bytes = spec.bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_TRUE(file->tensors().empty());
}

TEST(GgufReader, ReadsAFileOfTheGgufPackage) {
  const auto file = GgufFile::open(fixture("python.gguf"));
  ASSERT_TRUE(file) << file.error().message();
  const Metadata& meta = file->metadata();
  EXPECT_EQ(**meta.integer("t.u8"), 200);
  EXPECT_EQ(**meta.integer("t.i8"), -100);
  EXPECT_EQ(**meta.integer("t.u16"), 60000);
  EXPECT_EQ(**meta.integer("t.i16"), -30000);
  EXPECT_EQ(**meta.integer("t.u32"), 4000000000);
  EXPECT_EQ(**meta.integer("t.i32"), -2000000000);
  EXPECT_EQ(**meta.integer("t.u64"), std::int64_t{1} << 62);
  EXPECT_EQ(**meta.integer("t.i64"), -(std::int64_t{1} << 62));
  EXPECT_EQ(**meta.number("t.f32"), 0.5);
  EXPECT_EQ(**meta.number("t.f64"), 0.1);
  EXPECT_EQ(**meta.boolean("t.bool"), true);
  EXPECT_EQ(**meta.string("t.string"), "Grüße");
  EXPECT_EQ(**meta.strings("t.strings"), (std::vector<std::string>{"", "a", "Ġthe"}));
  EXPECT_EQ(**meta.integers("t.ints"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(**meta.numbers("t.floats"), (std::vector<double>{0.25, -1.5}));
  EXPECT_EQ(meta.find("t.bools")->element, MetaType::kBool);
  EXPECT_EQ(file->tensors().size(), 5u);
  EXPECT_EQ(file->find_tensor("cube.weight")->shape, (Shape{4, 3, 2}));
  for (const char* name : {"matrix.weight", "half.weight", "quantized.weight"}) {
    const GgufTensor* tensor = file->find_tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shape, (Shape{64, 3}));
    std::vector<float> values(192);
    codec(tensor->type).dequantize(tensor->data.data(), values.data(), 192);
    for (int i = 0; i < 192; ++i) EXPECT_NEAR(values[static_cast<std::size_t>(i)], i / 8.0, 0.1) << name;
  }
}

/// Legal values that no key of dllm has: the file loads, a reader of the key gets an error, a writer writes them back.
TEST(GgufReader, ValuesThatNothingReadsAreKept) {
  const std::uint64_t large = ~std::uint64_t{0};
  const std::string pairs = array(9, 2, array(8, 2, text("a") + text("b")) + array(10, 1, u64(large)));
  Spec spec;
  spec.keys.push_back(kv("x.large", MetaType::kU64, u64(large)));
  spec.keys.push_back(kv("x.list", MetaType::kArray, array(10, 2, u64(1) + u64(large))));
  spec.keys.push_back(kv("x.pairs", MetaType::kArray, pairs));
  spec.keys.push_back(kv("x.deep", MetaType::kArray, array(9, 1, array(9, 1, array(0, 1, "\x01")))));
  spec.keys.push_back(kv("x.after", MetaType::kU32, u32(7)));
  const std::string bytes = spec.bytes();
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().message();
  const Metadata& meta = file->metadata();
  EXPECT_EQ(**meta.integer("x.after"), 7);
  EXPECT_EQ(std::get<OpaqueValue>(meta.find("x.pairs")->payload).bytes, pairs);
  for (const auto& [key, reason] : {std::pair<const char*, const char*>{"x.large", "above 2^63"},
                                    {"x.list", "above 2^63"},
                                    {"x.pairs", "array of array"},
                                    {"x.deep", "array of array"}}) {
    const auto number = meta.integer(key);
    ASSERT_FALSE(number) << key;
    EXPECT_NE(number.error().what.find(reason), std::string::npos) << number.error().what;
    EXPECT_FALSE(meta.integers(key)) << key;
    EXPECT_FALSE(meta.strings(key)) << key;
  }
  const TempDir dir;
  ASSERT_TRUE(GgufWriter(meta).write(dir / "copy.gguf"));
  const auto copy = GgufFile::open(dir / "copy.gguf");
  ASSERT_TRUE(copy) << copy.error().message();
  EXPECT_EQ(copy->metadata().entries(), meta.entries());
  std::string nested;
  for (int level = 0; level < 100'000; ++level) nested += u32(9) + u64(1);
  Spec bottomless;
  bottomless.keys.push_back(kv("x", MetaType::kArray, nested + array(9, 0, "")));
  const auto refused = parse(bottomless.bytes());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("levels"), std::string::npos) << refused.error().what;
}

TEST(GgufReader, EveryTruncationIsAnError) {
  const std::string bytes = Spec().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exact size, so that the address sanitizer sees reads past the end.
    const std::string cut = bytes.substr(0, size);
    const auto file = parse(cut);
    ASSERT_FALSE(file) << size;
    ASSERT_EQ(file.error().code, ErrorCode::kInvalidFile) << size;
    ASSERT_TRUE(file.error().where.starts_with("test.gguf, offset 0x")) << file.error().where;
    ASSERT_FALSE(file.error().hint.empty()) << size;
  }
}

struct Damage {
  std::string name;
  std::function<void(Spec&)> apply;
  ErrorCode code;
  std::vector<std::string> mentions;  ///< in the message
};

class DamagedGguf : public testing::TestWithParam<Damage> {};

TEST_P(DamagedGguf, IsExplained) {
  Spec spec;
  GetParam().apply(spec);
  const std::string bytes = spec.bytes();
  const auto file = parse(bytes);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, GetParam().code) << file.error().message();
  EXPECT_TRUE(file.error().where.starts_with("test.gguf, offset 0x")) << file.error().where;
  EXPECT_FALSE(file.error().hint.empty()) << file.error().message();
  for (const std::string& part : GetParam().mentions)
    EXPECT_NE(file.error().message().find(part), std::string::npos) << part << " in " << file.error().message();
}

constexpr auto kInvalid = ErrorCode::kInvalidFile, kUnsupported = ErrorCode::kUnsupported;

/// A key that replaces the last one.
Damage key_damage(std::string name, MetaType type, std::string value, ErrorCode code,
                  std::vector<std::string> mentions) {
  mentions.push_back("'k'");
  return {std::move(name), [=](Spec& spec) { spec.keys.back() = kv("k", type, value); }, code, std::move(mentions)};
}

/// A tensor info that replaces the last one.
Damage tensor_damage(std::string name, std::string tensor, ErrorCode code, std::vector<std::string> mentions) {
  return {std::move(name), [=](Spec& spec) { spec.infos.back() = tensor; }, code, std::move(mentions)};
}

Damage alignment_damage(std::string name, std::uint32_t value) {
  return {std::move(name),
          [=](Spec& spec) { spec.keys.push_back(kv("general.alignment", MetaType::kU32, u32(value))); },
          kInvalid,
          {"general.alignment", std::to_string(value), "power of two"}};
}

std::vector<Damage> header_damages() {
  return {
      {"Magic", [](Spec& s) { s.magic = "GGML"; }, kInvalid, {"not a GGUF file", "0x0"}},
      {"Version1", [](Spec& s) { s.version = 1; }, kUnsupported, {"version 1", "convert"}},
      {"Version9", [](Spec& s) { s.version = 9; }, kUnsupported, {"version 9", "2 and 3"}},
      {"BigEndian", [](Spec& s) { s.version = 0x03000000; }, kUnsupported, {"big-endian", "gguf-convert-endian"}},
      {"HugeKeyCount", [](Spec& s) { s.extra_keys = std::uint64_t{1} << 60; }, kInvalid, {"metadata keys"}},
      {"OneKeyTooMany", [](Spec& s) { s.extra_keys = 1; }, kInvalid, {}},
      {"HugeTensorCount", [](Spec& s) { s.extra_tensors = std::uint64_t{1} << 60; }, kInvalid, {"tensors"}},
      {"OneTensorTooMany", [](Spec& s) { s.extra_tensors = 1; }, kInvalid, {}},
  };
}

std::vector<Damage> key_damages() {
  const auto huge = std::uint64_t{1} << 61;
  return {
      {"DuplicateKey", [](Spec& s) { s.keys.push_back(s.keys[1]); }, kInvalid, {"'llada.block_count'", "twice"}},
      {"EmptyKey", [](Spec& s) { s.keys[0] = kv("", MetaType::kU32, u32(1)); }, kInvalid, {"key 0", "0 bytes"}},
      {"HugeKeyLength", [](Spec& s) { s.keys[1] = u64(~std::uint64_t{0}); }, kInvalid, {"key 1", "0x"}},
      {"UnprintableKey",
       [](Spec& s) { s.keys.insert(s.keys.end(), 2, kv("a\nb", MetaType::kU32, u32(1))); },
       kInvalid,
       {"'a\\x0ab'"}},
      key_damage("UnknownValueType", static_cast<MetaType>(99), u32(0), kUnsupported, {"99"}),
      key_damage("UnknownElementType", MetaType::kArray, array(55, 1, u32(1)), kUnsupported, {"55"}),
      key_damage("HugeArray", MetaType::kArray, array(4, huge, u32(1)), kInvalid, {"elements of type u32"}),
      key_damage("HugeStringArray", MetaType::kArray, array(8, huge, text("a")), kInvalid, {"elements of type string"}),
      key_damage("HugeString", MetaType::kString, u64(huge), kInvalid, {"needs 2305843009213693952 bytes"}),
      key_damage("HugeStringInArray", MetaType::kArray, array(8, 2, text("a") + u64(~std::uint64_t{0})), kInvalid, {}),
      key_damage("NestedArrayCut", MetaType::kArray, array(9, 2, array(4, 1, u32(1))), kInvalid, {}),
      key_damage("NestedArrayHuge", MetaType::kArray, array(9, 1, array(10, huge, u64(1))), kInvalid, {"elements"}),
      key_damage("NestedArrayOfNothing", MetaType::kArray, array(9, 1, array(13, 1, u32(1))), kUnsupported, {"13"}),
      key_damage("BoolOfTwo", MetaType::kBool, "\x02", kInvalid, {"bool 2"}),
      alignment_damage("AlignmentZero", 0),
      alignment_damage("AlignmentThree", 3),
      alignment_damage("AlignmentFour", 4),
      alignment_damage("AlignmentHuge", 1u << 31),
      {"AlignmentString",
       [](Spec& s) { s.keys.push_back(kv("general.alignment", MetaType::kString, text("32"))); },
       kInvalid,
       {"'general.alignment'", "string", "integer"}},
      {"Split",
       [](Spec& s) { s.keys.push_back(kv("split.count", MetaType::kU16, raw(std::uint16_t{2}))); },
       kUnsupported,
       {"2 GGUF files", "split.count", "--merge"}},
  };
}

std::vector<Damage> tensor_damages() {
  const auto large = std::uint64_t{1} << 40;
  return {
      tensor_damage("DuplicateTensor", info("x.weight", {8}, 0, 32), kInvalid, {"'x.weight'", "twice"}),
      tensor_damage("NoName", info("", {8}, 0, 32), kInvalid, {"tensor 1"}),
      tensor_damage("HugeName", u64(~std::uint64_t{0}) + std::string(64, 'x'), kInvalid, {"tensor 1"}),
      tensor_damage("NoDims", info("y", {}, 0, 32) + u64(0), kInvalid, {"'y'", "0 dimensions"}),
      tensor_damage("FiveDims", info("y", {1, 1, 1, 1, 1}, 0, 32), kInvalid, {"'y'", "5 dimensions"}),
      tensor_damage("HugeDims", text("y") + u32(~0u) + std::string(32, 'x'), kInvalid, {"'y'", "dimensions"}),
      tensor_damage("ZeroDim", info("y", {8, 0}, 0, 32), kInvalid, {"'y'", "[8, 0]", "positive"}),
      tensor_damage("NegativeDim", info("y", {std::uint64_t{1} << 63}, 0, 32), kInvalid,
                    {"'y'", "9223372036854775808"}),
      tensor_damage("TooManyElements", info("y", {large, large}, 0, 32), kInvalid, {"'y'", "too large"}),
      tensor_damage("TypeWithoutACodec", info("y", {256}, 35, 32), kUnsupported,
                    {"'y'", "type 35 (TQ2_0), which", "dllm.unpack", "Q4_K", "NVFP4"}),
      tensor_damage("ListOfTwoDimensions", info("d2t", {2, 3}, 27, 32), kInvalid,
                    {"'d2t'", "2 dimensions", "must have one"}),
      tensor_damage("LongList", info("d2t", {(1u << 24) + 1}, 26, 32), kInvalid,
                    {"'d2t'", "16777217 numbers", "at most 16777216"}),
      tensor_damage("UnknownType", info("y", {256}, 77, 32), kUnsupported, {"'y'", "type 77, which", "Q2_K"}),
      tensor_damage("NoWholeBlocks", info("y", {33, 2}, 8, 32), kInvalid, {"'y'", "33", "Q8_0", "32"}),
      tensor_damage("Unaligned", info("y", {2}, 0, 33), kInvalid, {"'y'", "0x21", "alignment 32"}),
      tensor_damage("PastTheEnd", info("y", {2}, 0, 96), kInvalid, {"'y'", "0x60", "incomplete"}),
      tensor_damage("AcrossTheEnd", info("y", {9}, 0, 32), kInvalid, {"'y'", "36 bytes", "incomplete"}),
      tensor_damage("OffsetOverflow", info("y", {8}, 0, ~std::uint64_t{31}), kInvalid, {"'y'"}),
      tensor_damage("LargeTensor", info("y", {large}, 0, 32), kInvalid, {"'y'", "incomplete"}),
      tensor_damage("Overlap", info("y", {4}, 0, 0), kInvalid, {"'y'", "'x.weight'", "overlaps"}),
  };
}

const auto kDamageName = [](const auto& damage) { return damage.param.name; };
INSTANTIATE_TEST_SUITE_P(Header, DamagedGguf, testing::ValuesIn(header_damages()), kDamageName);
INSTANTIATE_TEST_SUITE_P(Keys, DamagedGguf, testing::ValuesIn(key_damages()), kDamageName);
INSTANTIATE_TEST_SUITE_P(Tensors, DamagedGguf, testing::ValuesIn(tensor_damages()), kDamageName);

TEST(GgufReader, ExplainsFilesThatAreNoModels) {
  const auto empty = parse("");
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message().find("empty"), std::string::npos);
  const auto big_endian = GgufFile::open(fixture("big_endian.gguf"));
  ASSERT_FALSE(big_endian);
  EXPECT_EQ(big_endian.error().code, kUnsupported);
  EXPECT_NE(big_endian.error().message().find("big-endian"), std::string::npos);
  const auto missing = GgufFile::open(fixture("missing.gguf"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace dllm
