#include "graph/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/testing/tiny_graph.h"

namespace dllm {
namespace {

struct PlanShape {
  std::int64_t vocab = 150, width = 64, layers = 2, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
  std::int64_t rope_dims = 12;
  RopeLayout layout = RopeLayout::kHalfSplit;
  static constexpr bool head_norms = true;

  WeightId bias(GraphBuilder& b, const std::string& name, std::int64_t n) const { return b.weight(name, {n}); }
};

Graph tiny_graph(StepShape step) { return tiny_transformer(PlanShape{}, step); }

TEST(ExecutionPlan, ValuesThatLiveTogetherDoNotOverlap) {
  for (StepShape shape : {StepShape{1, 1}, StepShape{32, 7}, StepShape{64, 64}, StepShape{16, 0}}) {
    const ExecutionPlan plan = make_plan(tiny_graph(shape));
    const std::vector<Lifetime> lives = lifetimes(plan.graph);
    const auto end = [&](std::size_t v) {
      return plan.offset[v] + plan.graph.values[v].rows * plan.graph.values[v].width;
    };
    for (std::size_t a = 0; a < lives.size(); ++a) {
      EXPECT_EQ(plan.offset[a] % 16, 0);
      EXPECT_LE(end(a), plan.arena_floats);
      for (std::size_t b = a + 1; b < lives.size(); ++b) {
        // A value may overwrite one whose last use is the operator that writes it.
        const bool together = lives[a].first < lives[b].last && lives[b].first < lives[a].last;
        if (!together) continue;
        EXPECT_TRUE(end(a) <= plan.offset[b] || end(b) <= plan.offset[a])
            << plan.graph.values[a].name << " and " << plan.graph.values[b].name;
      }
    }
  }
}

TEST(ExecutionPlan, OnlyElementwiseOperatorsRunInPlace) {
  const ExecutionPlan plan = make_plan(tiny_graph({8, 8}));
  int in_place = 0;
  for (const Op& op : plan.graph.ops)
    for (ValueId out : outputs(op))
      for (ValueId in : inputs(op)) {
        const auto i = static_cast<std::size_t>(in), o = static_cast<std::size_t>(out);
        const std::int64_t in_end = plan.offset[i] + plan.graph.values[i].rows * plan.graph.values[i].width;
        const std::int64_t out_end = plan.offset[o] + plan.graph.values[o].rows * plan.graph.values[o].width;
        if (in_end <= plan.offset[o] || out_end <= plan.offset[i]) continue;
        ++in_place;
        EXPECT_EQ(plan.offset[i], plan.offset[o]);
        EXPECT_TRUE(op_name(op) == "rms_norm" || op_name(op) == "rope" || op_name(op) == "swiglu" ||
                    op_name(op) == "add")
            << op_name(op);
      }
  EXPECT_GT(in_place, 0);
}

TEST(ExecutionPlan, IsCloseToThePeakOfLiveValues) {
  const ExecutionPlan plan = make_plan(tiny_graph({32, 32}));
  const std::vector<Lifetime> lives = lifetimes(plan.graph);
  std::int64_t peak = 0;
  for (std::size_t op = 0; op < plan.graph.ops.size(); ++op) {
    std::int64_t live = 0;
    for (std::size_t v = 0; v < lives.size(); ++v)
      if (lives[v].first <= static_cast<std::int32_t>(op) && static_cast<std::int32_t>(op) <= lives[v].last)
        live += plan.graph.values[v].rows * plan.graph.values[v].width;
    peak = std::max(peak, live);
  }
  EXPECT_LE(plan.arena_floats, peak * 5 / 4);
}

TEST(ExecutionPlan, RunsHoldEveryOperatorOnce) {
  const ExecutionPlan plan = make_plan(tiny_graph({8, 3}));
  std::size_t next = 0;
  std::vector<std::string> fused;
  for (const OpRun& run : plan.runs) {
    EXPECT_EQ(run.first, next);
    EXPECT_LT(run.first, run.last);
    next = run.last;
    if (run.last - run.first == 1) continue;
    std::string names;
    for (std::size_t i = run.first; i < run.last; ++i) {
      names += std::string(names.empty() ? "" : " ") + std::string(op_name(plan.graph.ops[i]));
      for (ValueId out : outputs(plan.graph.ops[i])) EXPECT_FALSE(plan.scored[static_cast<std::size_t>(out)]);
    }
    EXPECT_EQ(run.kind, names == "linear linear swiglu"          ? OpRun::Kind::kGated
                        : names.substr(0, 13) == "linear linear" ? OpRun::Kind::kProducts
                                                                 : OpRun::Kind::kRows);
    fused.push_back(names);
  }
  EXPECT_EQ(next, plan.graph.ops.size());
  const std::string qkv = "linear linear linear", store = "rms_norm rms_norm rope rope store_kv";
  const std::string gated = "linear linear swiglu", norm = "add rms_norm";
  EXPECT_EQ(fused,
            (std::vector<std::string>{"embed rms_norm", qkv, store, norm, gated, norm, qkv, store, norm, gated}));
}

TEST(ExecutionPlan, GateAndUpRunApartWhereSomethingElseReadsThem) {
  Graph graph = tiny_graph({8, 3});
  const auto swiglu = std::find_if(graph.ops.begin(), graph.ops.end(),
                                   [](const Op& op) { return std::holds_alternative<op::Glu>(op); });
  ASSERT_NE(swiglu, graph.ops.end());
  const auto first = swiglu - graph.ops.begin();
  const ValueId up = std::get<op::Glu>(*swiglu).up;
  std::get<op::Glu>(*swiglu).gate = up;  // up is read twice, and the gate not at all
  const ExecutionPlan plan = make_plan(std::move(graph));
  for (const OpRun& run : plan.runs) {
    const bool holds = run.first <= static_cast<std::size_t>(first) && static_cast<std::size_t>(first) < run.last;
    EXPECT_FALSE(holds && run.kind == OpRun::Kind::kGated);
  }
}

TEST(ExecutionPlan, ValuesOfARunDoNotShareMemoryUnlessInPlace) {
  const ExecutionPlan plan = make_plan(tiny_graph({8, 3}));
  const auto meet = [&](std::size_t a, std::size_t b) {
    const auto end = [&](std::size_t v) {
      return plan.offset[v] + plan.graph.values[v].rows * plan.graph.values[v].width;
    };
    return end(a) > plan.offset[b] && end(b) > plan.offset[a];
  };
  for (const OpRun& run : plan.runs) {
    std::vector<std::size_t> values;
    for (std::size_t i = run.first; i < run.last; ++i)
      for (const auto& ids : {inputs(plan.graph.ops[i]), outputs(plan.graph.ops[i])})
        for (ValueId id : ids) values.push_back(static_cast<std::size_t>(id));
    for (std::size_t a : values)
      for (std::size_t b : values) {
        if (!meet(a, b)) continue;
        // The same rows in the same places: the loop over one row never touches another row.
        EXPECT_EQ(plan.offset[a], plan.offset[b]);
        EXPECT_EQ(plan.graph.values[a].width, plan.graph.values[b].width);
      }
  }
}

TEST(ExecutionPlan, ScoredRowsFollowTheGather) {
  const ExecutionPlan plan = make_plan(tiny_graph({8, 3}));
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v)
    EXPECT_EQ(plan.scored[v], plan.graph.values[v].rows == 3) << plan.graph.values[v].name;
  EXPECT_TRUE(plan.fits({8, 3}));
  EXPECT_TRUE(plan.fits({2, 1}));
  EXPECT_FALSE(plan.fits({9, 1}));
  EXPECT_FALSE(plan.fits({8, 4}));
}

}  // namespace
}  // namespace dllm
