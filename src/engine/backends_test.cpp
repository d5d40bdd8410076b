// A backend from outside the library, with a clock of its own, and one that this build has not got.
#include "engine/backends.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "dllm/model.h"
#include "engine/backend/cpu.h"

namespace dllm {
namespace {

constexpr double kSecondsPerRow = 0.25;

/// This processor's values, in a time of its own: so long for each row.
class RowClockBackend final : public Backend {
 public:
  explicit RowClockBackend(std::unique_ptr<Backend> values) : values_(std::move(values)) {}

  const ModelDesc& desc() const override { return values_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return values_->make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    VirtualStep step;
    for (const SequenceStep& one : batch) step.rows += static_cast<std::int32_t>(one.plan.rows.size());
    step.parts.array = kSecondsPerRow * step.rows;
    steps.push_back(step);
    return values_->forward(batch);
  }

  std::vector<VirtualStep> steps;

 private:
  std::unique_ptr<Backend> values_;
};

class RowClock final : public VirtualClock {
 public:
  explicit RowClock(RowClockBackend& backend) : backend_(backend) {}

  void reset() override { backend_.steps.clear(); }
  VirtualTime read(const Generation& answer) const override {
    VirtualTime time;
    time.device = "rows";
    time.steps = backend_.steps;
    for (std::size_t i = 0; i < time.steps.size(); ++i) {
      time.parts += time.steps[i].parts;
      if (i < first_block_passes(answer)) time.first_block_seconds = time.parts.seconds();
    }
    return time;
  }
  Expected<LatencyTable> latency_table() override {
    return Error{ErrorCode::kUnsupported, "rows have no stairs", "--latency", "name a file"};
  }
  nlohmann::ordered_json settings() const override { return {{"device", "rows"}}; }

 private:
  RowClockBackend& backend_;
};

Expected<RunningBackend> make_rows(const Model& model, const std::string& path, const LoadOptions& options,
                                   const Log& log) {
  DLLM_TRY(RunningBackend running, run_on_cpu(model, path, options, log));
  running.latency.reset();
  running.second_path = nullptr;
  auto timed = std::make_unique<RowClockBackend>(std::move(running.backend));
  running.clock = std::make_unique<RowClock>(*timed);
  running.backend = std::move(timed);
  return running;
}

const bool added = [] {
  BackendEntry rows{"test-rows", "so long for each row", make_rows};
  rows.virtual_time = true;
  BackendEntry absent{"test-absent", "not in this build"};
  absent.missing = "install the test's headers and build again";
  return add_backend(std::move(rows)) && add_backend(std::move(absent));
}();

LoadOptions on(const char* backend) {
  LoadOptions options;
  options.backend = backend;
  return options;
}

Expected<Generation> answer_of(const LanguageModel& model, const char* latency = nullptr) {
  GenerateOptions options;
  options.length = 32;
  if (latency != nullptr) {
    options.window.name = "adaptive";
    options.window.options["latency"] = std::string(latency);
  }
  return model.generate("Reverse: a b c", options);
}

TEST(Backends, OneFromOutsideAnswersInItsOwnTime) {
  ASSERT_TRUE(added);
  const auto model = LanguageModel::load("", on("test-rows"));
  ASSERT_TRUE(model) << model.error().message();
  const auto here = LanguageModel::load("");
  ASSERT_TRUE(here);
  const auto plain = answer_of(*here);
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->virtual_time);
  // The second answer starts at zero too.
  for (int i = 0; i < 2; ++i) {
    const auto timed = answer_of(*model);
    ASSERT_TRUE(timed) << timed.error().message();
    EXPECT_EQ(timed->hash, plain->hash);
    ASSERT_TRUE(timed->virtual_time);
    EXPECT_EQ(timed->virtual_time->device, "rows");
    EXPECT_EQ(timed->virtual_time->steps.size(), static_cast<std::size_t>(timed->stats.nfe));
    EXPECT_DOUBLE_EQ(timed->virtual_time->parts.seconds(),
                     kSecondsPerRow * static_cast<double>(timed->stats.rows_forwarded));
    EXPECT_GT(timed->virtual_time->first_block_seconds, 0);
  }
}

TEST(Backends, TheCostOfStepsComesFromTheClock) {
  const auto model = LanguageModel::load("", on("test-rows"));
  ASSERT_TRUE(model) << model.error().message();
  const auto refused = answer_of(*model, "auto");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what, "rows have no stairs");
}

TEST(Backends, ThePassesOfTheFirstBlock) {
  Generation answer;
  answer.options.block_length = 2;
  EXPECT_EQ(first_block_passes(answer), 0U);
  answer.commit_step = {3, 1, 7};
  EXPECT_EQ(first_block_passes(answer), 4U);
  answer.commit_step = {-1, -1, 7};
  EXPECT_EQ(first_block_passes(answer), 0U);
  answer.options.block_length = 8;
  EXPECT_EQ(first_block_passes(answer), 8U);
}

TEST(Backends, OneThatTheBuildHasNotGotSaysHowToGetIt) {
  const auto model = LanguageModel::load("", on("test-absent"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(model.error().where, "--backend");
  EXPECT_EQ(model.error().hint, "install the test's headers and build again");
  const auto unknown = find_backend("test-row");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_NE(unknown.error().hint.find("test-rows"), std::string::npos);
  EXPECT_EQ((*find_backend(""))->name, "cpu");
}

TEST(Backends, HintsNameThoseThatHaveVirtualTime) {
  EXPECT_EQ(virtual_time_hint(), "add --backend npu or --backend test-rows");
}

TEST(Backends, OnlyADeviceReadsItsTiles) {
  for (const BackendEntry& entry : backends()) EXPECT_EQ(entry.device_tiles, entry.name == "npu") << entry.name;
}

}  // namespace
}  // namespace dllm
