#include "cpu/weight_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/checksum.h"
#include "base/testing/temp_dir.h"
#include "cpu/packed_weights.h"
#include "cpu/testing/tiny_model.h"

namespace dllm::cpu {
namespace {

namespace fs = std::filesystem;
using test::TinyModel;
using test::TinyShape;

class WeightCache : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.path = (directory_ / "m.gguf.dllm-packed").string();
    options_.source_size = 1234;
    options_.source_stamp = 99;
    options_.log = Log([this](LogLevel, const std::string& line) { warnings_.push_back(line); });
  }
  void TearDown() override { ::chmod(directory_.c_str(), 0700); }

  static TinyModel model(TensorType type = TensorType::kQ4_0, std::uint64_t seed = 1) {
    TinyShape shape;
    shape.type = type;
    return TinyModel(shape, seed);
  }

  PackedWeights pack(const TinyModel& model) {
    warnings_.clear();
    return PackedWeights::pack(model.factory()({1, 1}), model.weights(), pool_, options_);
  }

  std::string content() const {
    std::ifstream file(options_.path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void write(const std::string& bytes) const { std::ofstream(options_.path, std::ios::binary) << bytes; }

  /// Every panel and flag equals the result of packing.
  void expect_right(const PackedWeights& packed, const TinyModel& model) {
    const PackedWeights fresh = PackedWeights::pack(model.factory()({1, 1}), model.weights(), pool_);
    int matrices = 0;
    for (WeightId id = 0; id < static_cast<WeightId>(model.weights().size()); ++id) {
      const PackedWeight *a = packed.find(id), *b = fresh.find(id);
      ASSERT_EQ(a == nullptr, b == nullptr);
      if (a == nullptr) continue;
      ++matrices;
      EXPECT_EQ(a->regular, b->regular);
      const auto bytes = static_cast<std::size_t>((a->n + kPanel - 1) / kPanel * a->layout.bytes);
      ASSERT_EQ(std::memcmp(a->panels, b->panels, bytes), 0) << "weight " << id;
    }
    EXPECT_GE(matrices, 15);
  }

  bool warned(const std::string& word) const {
    return warnings_.size() == 1 && warnings_[0].find(word) != std::string::npos;
  }
  std::string said() const { return warnings_.empty() ? "(nothing)" : warnings_.front(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  dllm::test::TempDir temporary_;
  fs::path directory_ = temporary_.path();
  WeightCacheOptions options_;
  std::vector<std::string> warnings_;
  ThreadPool pool_{2};
};

TEST_F(WeightCache, IsWrittenOnceAndMappedThen) {
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0, TensorType::kQ5_0, TensorType::kQ4_1}) {
    fs::remove(options_.path);
    const TinyModel m = model(type);
    const PackedWeights first = pack(m);
    EXPECT_FALSE(first.mapped());
    EXPECT_TRUE(warnings_.empty()) << said();
    expect_right(first, m);
    const std::string written = content();
    const PackedWeights second = pack(m);
    EXPECT_TRUE(second.mapped());
    EXPECT_EQ(second.bytes(), 0u) << "the panels are not in memory twice";
    EXPECT_TRUE(warnings_.empty()) << said();
    expect_right(second, m);
    EXPECT_EQ(content(), written);
    EXPECT_EQ(files(), 1u) << "no temporary file stays";
  }
}

TEST_F(WeightCache, GivesTheBackendTheSameBits) {
  const TinyModel m = model();
  std::vector<std::vector<float>> logits;
  for (int load = 0; load < 3; ++load) {
    CpuOptions options;
    options.threads = 2;
    if (load > 0) options.weight_cache = options_;
    auto backend = CpuBackend::create(ModelDesc{}, m.factory(), m.weights(), options);
    ASSERT_TRUE(backend);
    auto cache = (*backend)->make_cache(4);
    ASSERT_TRUE(cache);
    SequenceStep step;
    step.cache = cache->get();
    for (Position p = 0; p < 4; ++p) {
      step.plan.rows.push_back({p, p + 3});
      step.plan.scored.push_back(p);
    }
    step.plan.visible = {{0, 4}};
    step.request.logits = true;
    auto scores = (*backend)->forward({&step, 1});
    ASSERT_TRUE(scores);
    logits.push_back((*scores)[0].logits);
  }
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_EQ(logits[0], logits[2]);
}

TEST_F(WeightCache, AnotherModelIsPackedAnew) {
  pack(model());
  ++options_.source_stamp;
  EXPECT_FALSE(pack(model()).mapped());
  EXPECT_TRUE(warned("written after")) << said();
  EXPECT_TRUE(pack(model()).mapped());
  ++options_.source_size;
  EXPECT_FALSE(pack(model()).mapped());
  EXPECT_TRUE(warned("written after")) << said();
  // The same size and time, other weights: only the sampled bytes differ.
  const TinyModel other = model(TensorType::kQ4_0, 2);
  const PackedWeights packed = pack(other);
  EXPECT_FALSE(packed.mapped());
  EXPECT_TRUE(warned("another model's")) << said();
  expect_right(packed, other);
  EXPECT_FALSE(pack(model(TensorType::kQ8_0, 2)).mapped());
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(WeightCache, PanelsForAnotherArithmeticAreNotTaken) {
  const TinyModel m = model();
  const auto packed = [&](bool super) {
    warnings_.clear();
    return PackedWeights::pack(m.factory()({1, 1}), m.weights(), pool_, options_, {},
                               super ? SuperWeights::kAll : SuperWeights::kNone);
  };
  EXPECT_EQ(packed(false).arithmetic(), "exact");
  EXPECT_FALSE(packed(true).mapped());
  EXPECT_TRUE(warned("another arithmetic")) << said();
  const PackedWeights super = packed(true);
  EXPECT_TRUE(super.mapped());
  EXPECT_EQ(super.arithmetic(), "super");
  EXPECT_TRUE(warnings_.empty()) << said();
  EXPECT_FALSE(packed(false).mapped());
}

TEST_F(WeightCache, AnyDamagedByteIsFound) {
  const TinyModel m = model();
  pack(m);
  const std::string whole = content();
  // All of the header and the first records, then a sample of everything; the padding between tensors is not read.
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 200; ++i) places.push_back(i);
  for (std::size_t i = 200; i < whole.size(); i += 997) places.push_back(i);
  int harmless = 0;
  for (const std::size_t place : places) {
    std::string spoilt = whole;
    spoilt[place] = static_cast<char>(spoilt[place] ^ 0x10);
    write(spoilt);
    const PackedWeights packed = pack(m);
    expect_right(packed, m);
    EXPECT_EQ(packed.mapped(), warnings_.empty()) << "byte " << place << " of " << whole.size();
    if (packed.mapped()) {
      ++harmless;
      EXPECT_EQ(whole[place], '\0') << "byte " << place << " of " << whole.size();
    }
    fs::remove(options_.path);
  }
  EXPECT_LT(harmless, static_cast<int>(places.size()) / 2);
}

TEST_F(WeightCache, TruncatedFilesArePackedAnew) {
  const TinyModel m = model();
  pack(m);
  const std::string whole = content();
  for (const std::size_t size : {std::size_t{8}, std::size_t{40}, std::size_t{72}, std::size_t{100}, std::size_t{4095},
                                 whole.size() / 2, whole.size() - 1}) {
    write(whole.substr(0, size));
    const PackedWeights packed = pack(m);
    EXPECT_FALSE(packed.mapped()) << size;
    EXPECT_EQ(warnings_.size(), 1u) << size;
    expect_right(packed, m);
    EXPECT_EQ(content(), whole) << "mended";
  }
  write(whole + "x");
  EXPECT_FALSE(pack(m).mapped());
  EXPECT_EQ(content(), whole);
}

TEST_F(WeightCache, ForeignFilesAreLeftAlone) {
  const TinyModel m = model();
  for (const std::string& text : {std::string(), std::string("GGUF"), std::string(5000, 'p')}) {
    write(text);
    const PackedWeights packed = pack(m);
    EXPECT_FALSE(packed.mapped());
    ASSERT_EQ(warnings_.size(), 2u);
    EXPECT_NE(warnings_[1].find("not a weight cache"), std::string::npos) << warnings_[1];
    expect_right(packed, m);
    EXPECT_EQ(content(), text);
  }
  fs::remove(options_.path);
  fs::create_directory(options_.path);
  expect_right(pack(m), m);
  EXPECT_TRUE(fs::is_directory(options_.path));
}

TEST_F(WeightCache, GoesOnWhereItCannotWrite) {
  const TinyModel m = model();
  options_.path = (directory_ / "missing" / "m.dllm-packed").string();
  expect_right(pack(m), m);
  EXPECT_TRUE(warned("going on without")) << said();
  if (::geteuid() == 0) GTEST_SKIP() << "root writes into read-only directories";
  options_.path = (directory_ / "m.dllm-packed").string();
  ::chmod(directory_.c_str(), 0500);
  expect_right(pack(m), m);
  EXPECT_TRUE(warned("check the permissions")) << said();
}

TEST_F(WeightCache, NothingIsKeptOfASourceThatChanged) {
  const TinyModel m = model();
  options_.check_source = [] { return Expected<void>(Error{ErrorCode::kIo, "changed while it was read", "", ""}); };
  expect_right(pack(m), m);
  EXPECT_TRUE(warned("changed while it was read")) << said();
  EXPECT_EQ(files(), 0u);
}

TEST_F(WeightCache, ChecksumsAndFingerprintsSeeFirstAndLastBytes) {
  // Of these sizes the last sample ends with the last byte; of others up to two bytes before it.
  for (const std::size_t size : {1u, 63u, 64u, 67u, 1024u}) {
    std::vector<std::byte> bytes(size);
    const auto fingerprint = [&] {
      const CachedTensor tensor{"a", TensorType::kF32, 1, 1, 0, size, bytes};
      return source_fingerprint({&tensor, 1});
    };
    const std::uint64_t sum = checksum_of(bytes), print = fingerprint();
    for (const std::size_t at : {std::size_t{0}, size - 1}) {
      bytes[at] = std::byte{1};
      EXPECT_NE(checksum_of(bytes), sum) << size;
      EXPECT_NE(fingerprint(), print) << size;
      bytes[at] = std::byte{0};
    }
    EXPECT_EQ(checksum_of(bytes), sum);
  }
}

// If the panels' bytes change, kLayoutVersion in weight_cache.cpp must change too, or old caches would be read as if
// they were new. If this fails: increment the version, then update the hash.
TEST_F(WeightCache, LayoutVersionStandsForThePanels) {
  std::uint64_t hash = 0;
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0, TensorType::kQ5_0, TensorType::kQ4_1}) {
    const TinyModel m = model(type);
    const PackedWeights packed = PackedWeights::pack(m.factory()({1, 1}), m.weights(), pool_);
    for (WeightId id = 0; id < static_cast<WeightId>(m.weights().size()); ++id)
      if (const PackedWeight* weight = packed.find(id))
        hash = hash * 31 +
               checksum_of({reinterpret_cast<const std::byte*>(weight->panels),
                            static_cast<std::size_t>((weight->n + kPanel - 1) / kPanel * weight->layout.bytes)});
  }
  EXPECT_EQ(hash, 0x0d3d31d19b5eac4du) << std::hex << hash;
}

}  // namespace
}  // namespace dllm::cpu
