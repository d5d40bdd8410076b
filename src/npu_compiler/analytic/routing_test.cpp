#include "npu_compiler/analytic/routing.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "npu_compiler/analytic/operator_work.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

TEST(ExpertLoad, Balanced) {
  const ChoiceAssumption balanced{.balanced = true};
  EXPECT_EQ(expert_load(512, 64, 8, 128, balanced).touched, 64);
  EXPECT_EQ(expert_load(512, 64, 8, 128, balanced).blocks, 64);
  EXPECT_EQ(expert_load(3, 64, 8, 128, balanced).touched, 24);
  EXPECT_EQ(expert_load(3, 64, 8, 128, balanced).blocks, 24);
  EXPECT_EQ(expert_load(1032, 64, 8, 128, balanced).blocks, 128) << "129 rows each";
  EXPECT_EQ(expert_load(512, 64, 8, 128, {.balanced = true, .lanes = 16}).touched, 16);
  EXPECT_EQ(expert_load(512, 64, 8, 128, {.balanced = true, .lanes = 16}).blocks, 32);
}

/// The reference's figures for one block of 32 rows: 163 of 256 and 63 of 64 experts.
TEST(ExpertLoad, ExpectedUnion) {
  EXPECT_NEAR(expert_load(32, 256, 8, 128, {}).touched, 163.3, 0.1);
  EXPECT_NEAR(expert_load(32, 64, 8, 128, {}).touched, 63.1, 0.1);
  EXPECT_EQ(expert_load(32, 64, 64, 16, {}).blocks, 128) << "every row chooses everything";
}

/// Comparison with random draws.
TEST(ExpertLoad, ExpectedBlocks) {
  struct Case {
    std::int64_t rows, experts, used, block;
  };
  std::mt19937 random(5);
  for (const Case& c : {Case{100, 16, 3, 4}, Case{300, 8, 3, 32}, Case{7, 64, 2, 4}}) {
    double touched = 0, blocks = 0;
    constexpr int kDraws = 400;
    for (int draw = 0; draw < kDraws; ++draw) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(c.experts));
      for (std::int64_t r = 0; r < c.rows; ++r) {
        std::set<std::size_t> own;
        while (own.size() < static_cast<std::size_t>(c.used)) own.insert(random() % rows.size());
        for (const std::size_t e : own) ++rows[e];
      }
      for (const std::int64_t n : rows) touched += n > 0, blocks += static_cast<double>((n + c.block - 1) / c.block);
    }
    const ExpertLoad load = expert_load(c.rows, c.experts, c.used, c.block, {});
    EXPECT_NEAR(load.touched, touched / kDraws, 0.02 * load.touched);
    EXPECT_NEAR(load.blocks, blocks / kDraws, 0.02 * load.blocks);
  }
  // Far from underflow: a mean of 65,536 rows each.
  EXPECT_NEAR(expert_load(std::int64_t{1} << 20, 128, 8, 64, {}).blocks, 128 * (1024 + 0.5), 32);
}

struct Fixture {
  Device device;
  ModelShape shape;
  StepCost cost;
  std::vector<std::string> names;
};

Fixture cost_of(const std::string& device, const std::string& model, const Workload& workload) {
  Fixture step{*load_device(device), *load_model_shape(model), {}, {}};
  const Graph graph = step.shape.architecture->build(step.shape.desc, refine_shape(workload));
  for (const auto& op : graph.ops) step.names.emplace_back(op_name(op));
  step.cost =
      *CostModel::create(step.device, 0.88 * step.device.memory_gbps())->evaluate(graph, assumptions_of(workload));
  return step;
}

TEST(ExpertCost, BoundsHold) {
  for (const std::string& device : device_names())
    for (const char* model : {"llada-moe", "llada2-mini"})
      for (const std::int64_t batch : {1, 16})
        for (const bool balanced : {false, true}) {
          Workload workload;
          workload.batch = batch, workload.choices.balanced = balanced;
          const StepCost cost = cost_of(device, model, workload).cost;
          for (const OperatorCost& c : cost.operators) {
            ASSERT_LE(c.lower_bound, c.cycles * (1 + 1e-12)) << device << " op " << c.op;
            ASSERT_LE(c.cycles, c.matrix + c.vector + c.memory + c.host + 1e-6);
          }
          ASSERT_LE(cost.lower_bound, cost.overlapped * (1 + 1e-12));
          ASSERT_LE(cost.overlapped, cost.total.cycles * (1 + 1e-12));
        }
}

/// LLaDA-MoE, 16 x 32 rows on dart-2048: every expert is touched, and reading their weights takes longer than the
/// array's work.
TEST(ExpertCost, UnionSetsTheTraffic) {
  Workload workload;
  const Fixture all = cost_of("dart-2048", "llada-moe", workload);
  workload.choices.lanes = 16;
  const Fixture few = cost_of("dart-2048", "llada-moe", workload);
  double experts = 0, fewer = 0, macs = 0;
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    if (all.names[i] != "experts") continue;
    EXPECT_EQ(all.cost.operators[i].bound, Bound::kMemory);
    experts += all.cost.operators[i].weight_bytes, fewer += few.cost.operators[i].weight_bytes;
    macs += static_cast<double>(all.cost.operators[i].macs);
    EXPECT_EQ(all.cost.operators[i].macs, few.cost.operators[i].macs);
  }
  EXPECT_NEAR(experts, 16 * 64 * 3.0 * 2048 * 1024 * 4.25 / 8, 1e3);
  EXPECT_NEAR(fewer, experts / 4, 1e3);
  EXPECT_EQ(macs, 16.0 * 512 * 8 * 3 * 2048 * 1024);
}

TEST(ExpertShapes, ParametersAndErrors) {
  const auto moe = load_model_shape("llada-moe"), mini = load_model_shape("llada2-mini");
  ASSERT_TRUE(moe && mini);
  const auto parameters = [](const ModelShape& shape) {
    double count = 0;
    for (const WeightDecl& decl : shape.architecture->build(shape.desc, {1, 1}).weights)
      if (decl.required) count += static_cast<double>(element_count(decl.shape));
    return count;
  };
  EXPECT_NEAR(parameters(*moe), 7.36e9, 0.05e9);
  EXPECT_NEAR(parameters(*mini), 16.26e9, 0.1e9);
}

}  // namespace
}  // namespace dllm::npu
