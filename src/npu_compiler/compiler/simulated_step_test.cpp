#include "npu_compiler/compiler/simulated_step.h"

#include <gtest/gtest.h>

#include <variant>

#include "model/architecture.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"
#include "npu_core/timing/simulator.h"

namespace dllm::npu {
namespace {

/// Operators sum to the cycles of the whole program, also where a step is cut into parts.
TEST(SimulatedStep, OperatorsSumToTheProgram) {
  ModelShape shape = *load_model_shape("llada-8b");
  shape.desc.layers = 1;
  shape.desc.vocab = 4096;
  const auto graph = [&](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
  const Device device = *load_device("dart-2048", {{"sram.vector_rows", "2048"}});
  for (const std::int64_t sequences : {1, 16}) {
    const Graph whole = graph({.rows = sequences * 32, .scored = sequences * 32});
    const std::vector<double> even(whole.ops.size(), 1);
    const auto step =
        simulate_step(device, graph, {.sequences = sequences, .rows = 32, .keys = 64, .scored = 32}, even, "");
    ASSERT_TRUE(step) << step.error().message();
    const auto compiled = compile_step(shape, device, {.size = {.sequences = sequences, .rows = 32, .keys = 64}});
    ASSERT_TRUE(compiled) << compiled.error().message();
    EXPECT_EQ(compiled->step.parts.size() > 1, sequences == 16);
    TimingOptions options;
    apply_issue(device.issue, options);
    options.repeat = true;
    const auto report = simulate(device, compiled->machine, compiled->step.program, options);
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_NEAR(step->total(), static_cast<double>(report->total), 1e-6 * static_cast<double>(report->total));
    EXPECT_LT(step->other, 0.02 * step->total());
    // Norms and additions may run in the shadow of products.
    for (std::size_t i = 0; i < whole.ops.size(); ++i) {
      const bool product = std::holds_alternative<op::Linear>(whole.ops[i]);
      EXPECT_TRUE(!product || step->cycles[i] > 0) << i;
    }
  }
}

TEST(SimulatedStep, RefusesWhatDoesNotFit) {
  const ModelShape shape = *load_model_shape("llada-8b");
  const auto graph = [&](StepShape rows) { return shape.architecture->build(shape.desc, rows); };
  const auto step = simulate_step(*load_device("mobile-sm8750", {{"sram.vector_rows", "1024"}}), graph,
                                  {.rows = 256, .scored = 32}, {}, "");
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace dllm::npu
