#include "engine/latency_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/fuzz_replay.h"
#include "base/testing/temp_dir.h"
#include "engine/testing/fuzz_entry.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

/// On a simulated clock, a step takes as many seconds as it has rows.
class CountingBackend : public Backend {
 public:
  const ModelDesc& desc() const override { return desc_; }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override {
    return std::unique_ptr<KvCache>(std::make_unique<Cache>(capacity));
  }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    now += static_cast<double>(batch[0].plan.rows.size());
    ++forwards;
    return std::vector<Scores>(1);
  }
  double now = 0;
  int forwards = 0;

 private:
  struct Cache : KvCache {
    explicit Cache(Position capacity) : KvCache(capacity) {}
  };
  ModelDesc desc_;
};

class LatencyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    key_.model = "m.gguf";
    key_.model_stamp = 7;
    key_.threads = 2;
  }

  LatencyResult get(bool renew = false) {
    warnings_.clear();
    LatencyOptions options;
    options.clock = [this] { return backend_.now; };
    options.budget_seconds = 1e6;
    const Log log([this](LogLevel, const std::string& line) { warnings_.push_back(line); });
    auto result = latency_table(backend_, key_, (directory_ / "made").string(), renew, options, log);
    EXPECT_TRUE(result);
    return *std::move(result);
  }

  test::TempDir temporary_;
  fs::path directory_ = temporary_.path();
  LatencyKey key_;
  CountingBackend backend_;
  std::vector<std::string> warnings_;
};

TEST(FuzzCorpus, Caches) {
  test::replay_corpus("caches", 100, [](std::string_view text) { fuzz_caches(test::bytes_of(text)); });
}

TEST_F(LatencyFile, IsMeasuredOncePerKey) {
  const LatencyResult first = get();
  EXPECT_TRUE(first.measured);
  EXPECT_TRUE(warnings_.empty());
  const int forwards = backend_.forwards;
  const LatencyResult second = get();
  EXPECT_FALSE(second.measured);
  EXPECT_EQ(backend_.forwards, forwards);
  EXPECT_EQ(second.path, first.path);
  for (const std::int64_t rows : {1, 5, 32, 300})
    EXPECT_EQ(first.table.estimate_ms(rows, 600), second.table.estimate_ms(rows, 600));
  EXPECT_DOUBLE_EQ(second.table.estimate_ms(5, 5), 5000);
  EXPECT_TRUE(get(/*renew=*/true).measured);
  key_.model_stamp = 8;
  EXPECT_TRUE(get().measured);
  key_.threads = 1;
  EXPECT_TRUE(get().measured);
  EXPECT_FALSE(get().measured);
}

TEST_F(LatencyFile, DamagedFilesAreMeasuredAnew) {
  const LatencyResult good = get();
  std::ifstream in(good.path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<std::string> bad = {"", "{", "[]", "{}", text.substr(0, text.size() / 2)};
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const auto at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    bad.push_back(changed);
  };
  with("\"m.gguf\"", "\"other.gguf\"");
  with("\"format\": 1", "\"format\": 2");
  with("\"ms_per_pair\": 0.0", "\"ms_per_pair\": -1.0");
  with("\"ms_per_pair\": 0.0", "\"ms_per_pair\": \"x\"");
  with("1000.0", "1e300");
  with("1000.0", "1001.0");  // only the checksum shows it
  with("2000.0", "null");
  with("   2,\n", "   1,\n");  // two times for one row
  for (const std::string& content : bad) {
    std::ofstream(good.path) << content;
    EXPECT_TRUE(get().measured) << content;
    EXPECT_FALSE(get().measured);
  }
}

TEST_F(LatencyFile, GoesOnWhereItCannotWrite) {
  std::ofstream(directory_ / "made") << "a file in the directory's place";
  EXPECT_TRUE(get().measured);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("cannot keep"), std::string::npos);
}

}  // namespace
}  // namespace dllm
