// A model's denoising step as a program for the planner.
#include "npu_compiler/runtime/step_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/architecture.h"
#include "npu_compiler/analytic/cost_model.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

struct Fixture {
  Device device;
  Graph graph;
  CostAssumptions load;
  MemoryProgram program;
};

Fixture step_of(const std::string& shape_name) {
  Fixture step{*load_device("mobile-v79"), {}, {.sequences = 1, .keys = 256}, {}};
  const ModelShape shape = *load_model_shape(shape_name);
  step.graph = shape.architecture->build(shape.desc, {.rows = 32, .scored = 32});
  const CostModel model = *CostModel::create(step.device, 60);
  step.program = step_program(step.graph, step.device, step.load, *model.evaluate(step.graph, step.load));
  return step;
}

const MemoryTensor& tensor(const Fixture& step, const std::string& name) {
  return *std::ranges::find(step.program.tensors, name, &MemoryTensor::name);
}

TEST(StepMemory, SizesAreTheFormats) {
  const Fixture step = step_of("llada-8b");
  // Q4_0: 4.5 bits; FP16 keys and values of 32 heads of 128.
  EXPECT_EQ(tensor(step, "blk.0.ffn_gate.weight").bytes, std::int64_t{4096} * 12288 * 9 / 16);
  EXPECT_EQ(tensor(step, "blk.0.ffn_gate.weight").granule, 4096 * 32 * 9 / 16);
  EXPECT_EQ(tensor(step, "blk.31.kv").bytes, 256 * 2 * 4096 * 2);
  EXPECT_EQ(tensor(step, "blk.0.attn_norm.weight").bytes, 4096 * 2);
  EXPECT_EQ(step.program.ops.size(), step.graph.ops.size());
}

TEST(StepMemory, AnEightBillionModelRunsInAPhonesWindow) {
  const Fixture step = step_of("llada-8b");
  const MemoryLimits limits = *memory_limits(step.device);
  const auto plan = plan_memory(step.program, limits);
  ASSERT_TRUE(plan) << plan.error().what;
  EXPECT_LE(plan->window_used(), limits.window_bytes);
  EXPECT_GT(plan->staged_bytes, 0);
  EXPECT_LT(plan->seconds, plan->paging_seconds);
  for (std::size_t t = 0; t < plan->places.size(); ++t)
    if (step.program.tensors[t].name.ends_with(".kv")) {
      EXPECT_EQ(plan->places[t].kind, TensorPlace::kResident);
    }
}

TEST(StepMemory, ExpertsAreStagedOneByOne) {
  const Fixture step = step_of("llada-moe");
  const MemoryTensor& stack = tensor(step, "blk.0.ffn_gate_exps.weight");
  EXPECT_EQ(stack.bytes % stack.granule, 0);
  EXPECT_EQ(stack.bytes / stack.granule, 64);
}

TEST(StepMemory, ADeviceThatSeesAllHasNothingToPlace) {
  EXPECT_EQ(memory_limits(*load_device("dart-2048")).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace dllm::npu
