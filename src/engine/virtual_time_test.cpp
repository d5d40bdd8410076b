// Answers on a simulated device: its values, and its clock.
#include "engine/virtual_time.h"

#include <gtest/gtest.h>

#include "dllm/model.h"

namespace dllm {
namespace {

LanguageModel on_device(const std::string& device, const std::string& values, std::vector<std::string> changes = {}) {
  LoadOptions load;
  load.backend = "npu";
  load.device = device;
  load.npu_values = values;
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

/// Real text from a phone's formats, which the functional machine does not have, and a clock that adds up.
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

TEST(VirtualTime, FlagsOfADeviceNeedOne) {
  LoadOptions load;
  load.npu_paging = true;
  const auto model = LanguageModel::load("", load);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().where, "--no-somr");
  load.backend = "npu";
  load.device = "dart-2048";
  load.npu_processor = "host";
  EXPECT_NE(LanguageModel::load("", load).error().what.find("no host processor"), std::string::npos);
}

}  // namespace
}  // namespace dllm
