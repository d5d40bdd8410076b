// Answers on a simulated device: its values, and its clock.
#include "engine/virtual_time.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "dllm/model.h"
#include "engine/testing/second_path_test_options.h"

namespace dllm {
namespace {

LanguageModel on_device(const std::string& device, const std::string& values, std::vector<std::string> changes = {}) {
  LoadOptions load;
  load.backend = "npu";
  load.device = device;
  if (!values.empty()) load.backend_options["npu_values"] = values;
  load.device_changes = std::move(changes);
  auto model = LanguageModel::load("", load);
  EXPECT_TRUE(model) << model.error().message();
  return *std::move(model);
}

Generation answer(const LanguageModel& model, const std::string& cache = "") {
  GenerateOptions options;
  options.length = 32;
  if (!cache.empty()) options.cache.name = cache;
  const auto generation = model.generate("Reverse: a b c", options);
  EXPECT_TRUE(generation) << generation.error().message();
  return *generation;
}

/// Both ways to compute the values of a device that the functional machine has.
TEST(VirtualTime, ExecutorAndMachineAgree) {
  const std::vector<std::string> changes = {"array.hlen=32", "numerics.weight=mxint8:32:ocp",
                                            "numerics.kv=mxint8:32:ocp", "numerics.activation=mxint8:32:ocp"};
  const Generation executor = answer(on_device("plena-64", "executor", changes));
  const Generation machine = answer(on_device("plena-64", "machine", changes));
  EXPECT_EQ(executor.ids, machine.ids);
  EXPECT_EQ(executor.confidence, machine.confidence);
  EXPECT_EQ(executor.commit_step, machine.commit_step);
  ASSERT_TRUE(executor.virtual_time && machine.virtual_time);
  EXPECT_EQ(executor.virtual_time->parts.seconds(), machine.virtual_time->parts.seconds());
}

/// Real text from a phone's formats, and a clock that adds up.
TEST(VirtualTime, APhoneAnswers) {
  const LanguageModel model = on_device("mobile-sm8750", "");
  const Generation first = answer(model), second = answer(model);
  EXPECT_NE(first.text.find("c b a"), std::string::npos) << first.text;
  ASSERT_TRUE(first.virtual_time && second.virtual_time);
  const VirtualTime& time = *first.virtual_time;
  EXPECT_EQ(time.device, "mobile-sm8750");
  ASSERT_EQ(time.steps.size(), static_cast<std::size_t>(first.stats.nfe));
  double seconds = 0, joules = 0;
  std::int64_t rows = 0;
  for (const VirtualStep& step : time.steps) {
    seconds += step.parts.seconds();
    joules += step.energy.joules();
    rows += step.rows;
  }
  EXPECT_EQ(rows, first.stats.rows_forwarded);
  EXPECT_NEAR(time.parts.seconds(), seconds, 1e-12);
  EXPECT_NEAR(time.energy.joules(), joules, 1e-12);
  EXPECT_GT(time.prompt_seconds, 0);
  EXPECT_LE(time.prompt_seconds, time.first_block_seconds);
  EXPECT_LE(time.first_block_seconds, time.parts.seconds() + 1e-12);
  EXPECT_EQ(second.virtual_time->parts.seconds(), time.parts.seconds());
  EXPECT_EQ(second.virtual_time->energy.joules(), time.energy.joules());
}

/// The clock of the cycle-accurate simulator: the same answer, the same time when its reports are read back.
TEST(VirtualTime, SimulatedClock) {
  const std::filesystem::path cache = std::filesystem::path(::testing::TempDir()) / "simulated-clock";
  std::filesystem::remove_all(cache);
  std::filesystem::create_directories(cache);
  const char* const before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before == nullptr ? "" : before;
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  LoadOptions load;
  load.backend = "npu";
  load.device = "mobile-sm8750";
  load.backend_options["npu_timing"] = std::string("simulated");
  const Generation first = answer(*LanguageModel::load("", load)), second = answer(*LanguageModel::load("", load));
  before == nullptr ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", kept.c_str(), 1);
  EXPECT_FALSE(std::filesystem::is_empty(cache / "dllm" / "npu"));
  std::filesystem::remove_all(cache);
  const Generation modelled = answer(on_device("mobile-sm8750", ""));
  EXPECT_EQ(first.ids, modelled.ids);
  EXPECT_TRUE(first.virtual_time->steps[0].simulated);
  EXPECT_EQ(first.virtual_time->unsimulated, "");
  EXPECT_FALSE(modelled.virtual_time->steps[0].simulated);
  EXPECT_NE(first.virtual_time->parts.seconds(), modelled.virtual_time->parts.seconds());
  EXPECT_EQ(first.virtual_time->parts.seconds(), second.virtual_time->parts.seconds());
  EXPECT_EQ(first.virtual_time->energy.joules(), second.virtual_time->energy.joules());
}

TEST(VirtualTime, LatencyOfTheDevice) {
  const LanguageModel model = on_device("mobile-sm8750", "");
  GenerateOptions options;
  options.length = 32;
  options.window.name = "adaptive";
  options.window.options["latency"] = std::string("auto");
  const auto generation = model.generate("Reverse: a b c", options);
  ASSERT_TRUE(generation) << generation.error().message();
  EXPECT_TRUE(generation->virtual_time);
}

GenerateOptions merged(const std::string& merge) {
  GenerateOptions options = test::second_path();
  options.decoder.options["refresh_merge"] = merge;
  return options;
}

constexpr const char* kPens = "Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?";

/// Refreshes run on the host while the device runs passes: the sum of both is the same in every run, and what the
/// passes lose to them is their parts.
TEST(VirtualTime, SecondPathOnTheHost) {
  const LanguageModel model = on_device("mobile-sm8750", "");
  for (const char* merge : {"fixed", "ready"}) {
    const auto first = model.generate(kPens, merged(merge)), again = model.generate(kPens, merged(merge));
    ASSERT_TRUE(first) << first.error().message();
    ASSERT_TRUE(again);
    ASSERT_TRUE(first->virtual_time && again->virtual_time);
    const VirtualTime& time = *first->virtual_time;
    EXPECT_GE(first->stats.second_passes, 2);
    EXPECT_GE(time.refreshes.size(), static_cast<std::size_t>(first->stats.second_passes));
    EXPECT_EQ(time.steps.size(), static_cast<std::size_t>(first->stats.nfe));
    double seconds = 0, joules = 0, refreshing = 0, last = 0;
    for (const VirtualStep& step : time.steps) seconds += step.parts.seconds(), joules += step.energy.joules();
    for (const VirtualRefresh& one : time.refreshes) {
      EXPECT_GT(one.rows, 0);
      EXPECT_LE(one.rows, 9);
      EXPECT_GE(one.start_seconds, last);  // one after the other
      EXPECT_GT(one.end_seconds, one.start_seconds);
      EXPECT_LE(one.end_seconds, seconds * (1 + 1e-12));
      last = one.end_seconds;
      refreshing += one.end_seconds - one.start_seconds;
    }
    EXPECT_NEAR(time.parts.seconds(), seconds, 1e-12);
    EXPECT_NEAR(time.energy.joules(), joules, 1e-12);
    EXPECT_GT(refreshing, time.parts.refresh);  // some of it while passes ran
    EXPECT_EQ(again->ids, first->ids);
    EXPECT_EQ(again->virtual_time->parts.seconds(), time.parts.seconds());
    EXPECT_EQ(again->virtual_time->energy.joules(), time.energy.joules());
    if (std::string(merge) == "ready") {
      EXPECT_EQ(time.parts.refresh, 0);
    }
  }
}

/// The machine runs the passes of both paths, over a cache each, with the executor's bits.
TEST(VirtualTime, SecondPathOfTheMachine) {
  const std::vector<std::string> mx = {"numerics.weight=mxint8:32:ocp", "numerics.activation=mxint8:32:ocp",
                                       "numerics.kv=mxint4:32:ocp"};
  for (const std::vector<std::string>& changes : {std::vector<std::string>{}, mx}) {
    GenerateOptions options = merged("fixed");
    options.length = 32;
    const auto executor = on_device("mobile-sm8750", "executor", changes).generate(kPens, options);
    const auto machine = on_device("mobile-sm8750", "machine", changes).generate(kPens, options);
    ASSERT_TRUE(executor) << executor.error().message();
    ASSERT_TRUE(machine) << machine.error().message();
    EXPECT_GT(machine->stats.second_passes, 0);
    EXPECT_EQ(machine->stats.second_passes, executor->stats.second_passes);
    EXPECT_EQ(machine->ids, executor->ids);
    EXPECT_EQ(machine->confidence, executor->confidence);
    EXPECT_EQ(machine->virtual_time->parts.seconds(), executor->virtual_time->parts.seconds());
    EXPECT_EQ(machine->virtual_time->energy.joules(), executor->virtual_time->energy.joules());
  }
}

TEST(VirtualTime, SecondPathWithoutSmoothing) {
  const auto answer = on_device("mobile-sm8750", "", {"numerics.smooth_keys=mean"}).generate(kPens, merged("fixed"));
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().what.find("smoothed"), std::string::npos) << answer.error().message();
}

/// A slow host: a fixed delay waits for it, merging when ready does not, and the tokens of a fixed delay do not depend
/// on its speed.
TEST(VirtualTime, ASlowSecondPath) {
  const LanguageModel fast = on_device("mobile-sm8750", ""),
                      slow = on_device("mobile-sm8750", "", {"host.int8_gops=0.02", "host.f32_gflops=0.02"});
  const auto quick = fast.generate(kPens, merged("fixed")), waits = slow.generate(kPens, merged("fixed")),
             goes_on = slow.generate(kPens, merged("ready"));
  ASSERT_TRUE(quick && waits && goes_on);
  EXPECT_EQ(waits->ids, quick->ids);
  EXPECT_EQ(waits->stats.second_passes, quick->stats.second_passes);
  EXPECT_GT(waits->virtual_time->parts.refresh, 10 * quick->virtual_time->parts.refresh);
  EXPECT_LT(goes_on->stats.second_passes, waits->stats.second_passes);
  EXPECT_LT(goes_on->virtual_time->parts.seconds(), waits->virtual_time->parts.seconds());
}

/// With a delay of 0 nothing runs meanwhile.
TEST(VirtualTime, SecondPathWithoutDelay) {
  GenerateOptions options = merged("fixed");
  options.decoder.options["merge_delay"] = 0;
  const auto answer = on_device("mobile-sm8750", "").generate(kPens, options);
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_GT(answer->stats.second_passes, 0);
  EXPECT_EQ(answer->virtual_time->parts.contention, 0);
  double refreshing = 0;
  for (const VirtualRefresh& one : answer->virtual_time->refreshes) refreshing += one.end_seconds - one.start_seconds;
  EXPECT_NEAR(answer->virtual_time->parts.refresh, refreshing, 1e-12);
}

TEST(VirtualTime, SecondPathNeedsAHost) {
  const auto answer = on_device("mobile-v79", "").generate(kPens, merged("fixed"));
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().what.find("no host processor"), std::string::npos);
  GenerateOptions options = merged("fixed");
  options.decoder.options["refresh_threads"] = 2;
  const auto threads = on_device("mobile-sm8750", "").generate(kPens, options);
  ASSERT_FALSE(threads);
  EXPECT_EQ(threads.error().where, "--refresh-threads");
}

TEST(VirtualTime, FlagsOfADeviceNeedOne) {
  LoadOptions load;
  load.backend_options["npu_paging"] = true;
  const auto model = LanguageModel::load("", load);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().where, "--no-somr");
  load.backend = "npu";
  load.device = "dart-2048";
  load.backend_options["npu_timing"] = std::string("guessed");
  EXPECT_EQ(LanguageModel::load("", load).error().where, "--npu-timing");
  load.backend_options["npu_timing"] = std::string("simulated");
  load.backend_options["npu_processor"] = std::string("host");
  EXPECT_EQ(LanguageModel::load("", load).error().where, "--npu-timing");
  load.backend_options.erase("npu_timing");
  EXPECT_NE(LanguageModel::load("", load).error().what.find("no host processor"), std::string::npos);
}

}  // namespace
}  // namespace dllm
