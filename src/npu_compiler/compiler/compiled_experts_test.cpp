// Layers of experts on the functional machine against the reference executor.

#include <algorithm>
#include <map>
#include <set>

#include "npu_compiler/testing/reference/bench.h"

namespace dllm::npu {
namespace {

using test::Bench, test::TinyExperts, test::TinyShape, test::TinyWeights, test::format, test::range,
    test::small_machine, test::three_steps;

/// LLaDA-MoE: softmax over all experts, weights not normalized.
const TinyExperts kSoftmax{.count = 12, .used = 3, .width = 24};
/// LLaDA2: sigmoid, selection bias, groups, normalized and scaled weights, a shared expert, a first dense layer.
const TinyExperts kSigmoid{.count = 16,
                           .used = 3,
                           .width = 40,
                           .shared_width = 24,
                           .leading_dense = 1,
                           .score = GateScore::kSigmoid,
                           .bias = true,
                           .groups = 4,
                           .groups_used = 2,
                           .normalize = true,
                           .scale = 2.5f};

struct ExpertsCase {
  std::string name;
  TinyShape shape;
  MachineConfig machine;
};
void PrintTo(const ExpertsCase& c, std::ostream* out) { *out << c.name; }

template <class T, class Change>
T with(T base, Change change) {
  change(base);
  return base;
}

std::vector<ExpertsCase> experts_cases() {
  const auto machine = [](auto change) { return with(small_machine(), change); };
  const auto softmax = [](auto change) { return with(kSoftmax, change); };
  const auto sigmoid = [](auto change) { return with(kSigmoid, change); };
  const MachineConfig small = small_machine();
  const auto large_array = machine([](MachineConfig& m) { m.blen = 16, m.mlen = 64, m.vlen = 64; });
  return {
      {"softmax", {.routed = kSoftmax}, small},
      {"sigmoid", {.routed = kSigmoid}, small},
      {"softmax_large_array", {.routed = kSoftmax}, large_array},
      {"sigmoid_large_array", {.routed = kSigmoid}, large_array},
      {"normalized", {.routed = softmax([](TinyExperts& r) { r.normalize = true, r.scale = 0.7f; })}, small},
      {"scaled", {.routed = softmax([](TinyExperts& r) { r.scale = 1.7f; })}, small},
      {"softmax_in_groups",
       {.routed = softmax([](TinyExperts& r) { r.count = 32, r.groups = 4, r.groups_used = 1, r.bias = true; })},
       small},
      {"groups_of_one", {.routed = sigmoid([](TinyExperts& r) { r.groups = 16, r.groups_used = 5; })}, small},
      {"plain_sigmoid", {.routed = sigmoid([](TinyExperts& r) { r.groups = 0, r.bias = false; })}, small},
      {"block_routing", {.routed = sigmoid([](TinyExperts& r) { r.groups = 0, r.capacity = 6, r.block = 8; })}, small},
      {"as_many_experts_as_lanes", {.routed = softmax([](TinyExperts& r) { r.count = 64, r.used = 8; })}, small},
      {"twice_as_many_experts_as_lanes",
       {.routed = softmax([](TinyExperts& r) { r.count = 128, r.used = 4, r.normalize = true, r.scale = 0.7f; })},
       machine([](MachineConfig& m) { m.mram_elements *= 4, m.int_words = 4096; })},
      {"half_a_row_more_experts",
       {.routed = softmax([](TinyExperts& r) { r.count = 160, r.used = 5; })},
       machine([](MachineConfig& m) { m.int_words = 4096; })},
      {"groups_in_several_rows",
       {.routed = sigmoid([](TinyExperts& r) { r.count = 256, r.used = 4, r.groups = 8, r.groups_used = 4; })},
       machine([](MachineConfig& m) { m.int_words = 4096; })},
      {"groups_of_a_row",
       {.routed = sigmoid(
            [](TinyExperts& r) { r.count = 128, r.used = 4, r.groups = 2, r.groups_used = 1, r.bias = false; })},
       small},
      {"sigmoid_in_several_rows", {.routed = sigmoid([](TinyExperts& r) { r.count = 96, r.groups = 0; })}, small},
      {"one_of_two", {.routed = softmax([](TinyExperts& r) { r.count = 2, r.used = 1; })}, small},
      {"wide", {.width = 160, .routed = softmax([](TinyExperts& r) { r.width = 72; })}, machine([](MachineConfig& m) {
         m.mram_elements *= 4;
       })},
      {"streamed", {.width = 160, .routed = softmax([](TinyExperts& r) { r.width = 72; })}, small},
      // An even number of panels: the next expert's first one is requested while the last one is multiplied.
      {"streamed_without_a_gap", {.width = 128, .routed = softmax([](TinyExperts& r) { r.width = 120; })}, small},
      {"chunks_streamed_without_a_gap",
       {.width = 128, .routed = sigmoid([](TinyExperts& r) { r.width = 120; })},
       machine([](MachineConfig& m) { m.fp_words = 24; })},
      {"streamed_in_chunks",
       {.width = 160, .routed = sigmoid([](TinyExperts& r) { r.width = 104; })},
       machine([](MachineConfig& m) { m.fp_words = 24; })},
      {"narrow_experts", {.routed = softmax([](TinyExperts& r) { r.width = 10; })}, machine([](MachineConfig& m) {
         m.mlen = m.vlen = 64;
       })},
      {"little_fp_memory", {.routed = kSoftmax}, machine([](MachineConfig& m) { m.fp_words = 12; })},
      {"bf16", {.routed = kSigmoid}, machine([](MachineConfig& m) {
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("bf16");
       })},
      {"int4", {.routed = kSigmoid}, machine([](MachineConfig& m) {
         m.weight = m.matrix_kv = m.vector_kv = format("mxint4:16:plena");
       })},
  };
}

class CompiledExperts : public testing::TestWithParam<ExpertsCase> {};

TEST_P(CompiledExperts, EveryValueEqualsTheReference) {
  Bench bench(GetParam().shape, GetParam().machine);
  three_steps(bench, true);
}

TEST_P(CompiledExperts, SharedBuffersChangeNothing) {
  Bench bench(GetParam().shape, GetParam().machine);
  three_steps(bench, false);
}

INSTANTIATE_TEST_SUITE_P(Models, CompiledExperts, testing::ValuesIn(experts_cases()),
                         [](const auto& p) { return p.param.name; });

/// Which matrices of the experts' stacks are transferred, by weight.
class StackReads final : public IssueObserver {
 public:
  explicit StackReads(const ModelLayout& layout) : layout_(layout) {}
  void on_issue(const IssueEvent& event) override {
    if (event.instruction->op != Op::H_PREFETCH_M) return;
    const std::uint64_t base = event.accesses->ranges[0].base;
    for (const WeightPlace& place : layout_.weights) {
      const std::uint64_t bytes = place.tensor.format.element_bytes(static_cast<std::size_t>(place.expert_stride));
      if (place.experts > 1 && base >= place.tensor.base && base < place.tensor.base + place.tensor.scale_offset)
        reads[place.weight].push_back((base - place.tensor.base) / bytes);
    }
  }
  std::map<WeightId, std::vector<std::uint64_t>> reads;

 private:
  const ModelLayout& layout_;
};

/// Runs a step of 37 rows; returns which experts each stack was read for.
std::map<WeightId, std::vector<std::uint64_t>> reads_of(Bench& bench) {
  StackReads observer(bench.layout());
  bench.add_cache(40);
  bench.run({{bench.sequence(0, range(0, 37), {{0, 37}}, {1, 2, 3, 30})}}, {0}, true, HeadMode::kLogits, &observer);
  return observer.reads;
}

/// Equal keys: the lower expert, in every row. The others' weights are not loaded.
TEST(CompiledExperts, TiesAndUntouchedExperts) {
  for (const TinyExperts& routed : {kSoftmax, kSigmoid}) {
    Bench bench({.routed = routed}, small_machine(), 64, true, [](TinyWeights& weights) {
      for (const char* name : {"router", "router.bias"}) weights.fill(name, [](std::size_t) { return 0.0f; });
    });
    const auto reads = reads_of(bench);
    EXPECT_EQ(reads.size(), static_cast<std::size_t>(3 * (2 - routed.leading_dense)));
    for (const auto& [weight, experts] : reads) EXPECT_EQ(experts, (std::vector<std::uint64_t>{0, 1, 2}));
  }
}

/// Every row chooses expert 5; with a decisive bias, all choose 5, 6 and 7.
TEST(CompiledExperts, AllRowsChooseTheSame) {
  for (const int blen : {4, 16}) {
    MachineConfig machine = small_machine();
    machine.blen = blen;
    Bench bench({.routed = kSigmoid}, machine, 64, true, [](TinyWeights& weights) {
      weights.fill("router.bias", [](std::size_t e) { return e >= 5 && e < 8 ? 50.0f : 0.0f; });
    });
    for (const auto& [weight, experts] : reads_of(bench)) EXPECT_EQ(experts, (std::vector<std::uint64_t>{5, 6, 7}));
  }
  TinyExperts one = kSoftmax;
  one.used = 1, one.bias = true;
  Bench bench({.routed = one}, small_machine(), 64, true, [](TinyWeights& weights) {
    weights.fill("router.bias", [](std::size_t e) { return e == 5 ? 50.0f : 0.0f; });
  });
  for (const auto& [weight, experts] : reads_of(bench)) EXPECT_EQ(experts, (std::vector<std::uint64_t>{5}));
}

/// With 37 rows for two experts both are taken to be chosen and loaded before the choice; here no row chooses one of
/// them.
TEST(CompiledExperts, LoadedAheadButNotChosen) {
  for (const std::size_t chosen : {0u, 1u}) {
    Bench bench({.routed = with(kSoftmax, [](TinyExperts& r) { r.count = 2, r.used = 1, r.bias = true; })},
                small_machine(), 64, true, [chosen](TinyWeights& weights) {
                  weights.fill("router.bias", [chosen](std::size_t e) { return e == chosen ? 50.0f : 0.0f; });
                });
    ASSERT_TRUE(bench.layout().mram.experts_apart);
    for (const auto& [weight, experts] : reads_of(bench)) EXPECT_EQ(experts, (std::vector<std::uint64_t>{0, 1}));
  }
}

/// Matrix SRAM that holds one expert, without room for other panels next to it: no ring, nothing ahead.
TEST(CompiledExperts, OneSlot) {
  const TinyShape shape{.routed = with(kSoftmax, [](TinyExperts& r) { r.count = 2, r.used = 1, r.width = 56; })};
  MachineConfig machine = small_machine();
  machine.mram_elements = std::uint64_t{32 * 32} * 16;
  Bench bench(shape, machine);
  EXPECT_FALSE(bench.layout().mram.experts_apart);
  EXPECT_EQ(bench.layout().mram.expert_slots, 1);
  three_steps(bench, true);
}

/// Not even one expert fits: its panels pass through the buffers of other matrices.
TEST(CompiledExperts, Streamed) {
  const TinyShape shape{.width = 160, .routed = with(kSoftmax, [](TinyExperts& r) { r.width = 72; })};
  Bench bench(shape, small_machine());
  EXPECT_EQ(bench.layout().mram.expert_slots, 0);
  std::int64_t streamed = 0;
  for (const WeightPlace& place : bench.layout().weights) {
    streamed += place.streamed;
    EXPECT_EQ(place.streamed, place.experts > 1);
    if (place.streamed) {
      EXPECT_GT(place.matrix.panels(), 1);
    }
  }
  EXPECT_EQ(streamed, 3 * shape.layers);
  for (const auto& [weight, experts] : reads_of(bench)) EXPECT_GT(experts.size(), 5u);
}

/// A step reads each touched expert once, even if its rows come in several chunks.
TEST(CompiledExperts, ChunksKeepTheMatrices) {
  MachineConfig machine = small_machine();
  machine.fp_words = 12;
  Bench bench({.routed = kSoftmax}, machine);
  for (const auto& [weight, experts] : reads_of(bench)) {
    EXPECT_TRUE(std::ranges::is_sorted(experts));
    EXPECT_EQ(std::set(experts.begin(), experts.end()).size(), experts.size());
    EXPECT_GT(experts.size(), 5u) << "random routers touch most of 12 experts";
  }
}

/// Experts whose matrices a run without data reads, by stack.
std::vector<std::size_t> touched_experts(const TinyShape& shape, const MachineConfig& config,
                                         const ChoiceAssumption& assumption, std::int64_t rows) {
  const Bench bench(shape, config);
  SequenceSpec sequence;
  sequence.positions = range(0, static_cast<Position>(rows));
  sequence.visible = {{0, static_cast<Position>(rows)}};
  sequence.cache = bench.layout().weight_bytes;
  sequence.capacity = rows;
  const StepSpec spec{{sequence}};
  const auto step = compile_step(test::tiny_graph(shape, {rows, 0}), bench.layout(), spec, {.choices = assumption});
  EXPECT_TRUE(step.has_value()) << step.error().message();
  Machine machine = *Machine::create(config);
  StackReads observer(bench.layout());
  RunOptions options;
  options.data = false, options.observer = &observer;
  const auto ran = machine.run(step->program, options);
  EXPECT_TRUE(ran.has_value()) << ran.error().message();
  std::vector<std::size_t> counts;
  for (const auto& [weight, experts] : observer.reads) counts.push_back(experts.size());
  return counts;
}

/// Without data rows choose by assumption, round-robin or at random, and the cost follows the touched experts.
TEST(CompiledExperts, AssumedChoices) {
  const auto touched = [](const ChoiceAssumption& assumption, std::int64_t rows) {
    return touched_experts({.routed = kSoftmax}, small_machine(), assumption, rows);
  };
  const auto of_many = [](std::int64_t rows) {
    const TinyShape many{.routed = with(kSoftmax, [](TinyExperts& r) { r.count = 160; })};
    return touched_experts(many, with(small_machine(), [](MachineConfig& m) { m.int_words = 4096; }),
                           {.balanced = true}, rows);
  };
  EXPECT_EQ(of_many(20), (std::vector<std::size_t>(6, 60)));
  EXPECT_EQ(of_many(60), (std::vector<std::size_t>(6, 160)));
  EXPECT_EQ(touched({.balanced = true}, 2), (std::vector<std::size_t>(6, 6)));
  EXPECT_EQ(touched({.balanced = true}, 5), (std::vector<std::size_t>(6, 12)));
  EXPECT_EQ(touched({.balanced = false, .seed = 3}, 40), (std::vector<std::size_t>(6, 12)));
  EXPECT_EQ(touched({.balanced = false, .seed = 3, .lanes = 5}, 40), (std::vector<std::size_t>(6, 5)));
  const auto few = touched({.balanced = false, .seed = 3}, 2);
  EXPECT_EQ(touched({.balanced = false, .seed = 3}, 2), few);
  for (const std::size_t count : few) EXPECT_TRUE(count >= 3 && count <= 6);
}

TEST(CompiledExperts, WhatDoesNotFitIsSaid) {
  const auto refusal = [](const TinyExperts& routed, const MachineConfig& machine) {
    const Graph graph = test::tiny_graph({.routed = routed}, {1, 1});
    const TinyWeights weights(graph);
    const auto layout = make_layout(graph, weights.present(), machine, 64);
    return layout ? std::string() : layout.error().message();
  };
  EXPECT_EQ(refusal(kSoftmax, small_machine()), "");
  EXPECT_EQ(refusal(with(kSoftmax, [](TinyExperts& r) { r.count = 65; }), small_machine()), "");
  const auto of_blocks = [](TinyExperts& r) { r.count = 65, r.capacity = 6, r.block = 8; };
  EXPECT_NE(refusal(with(kSoftmax, of_blocks), small_machine()).find("row of 64 lanes"), std::string::npos);
  const auto of_groups = [](TinyExperts& r) { r.count = 256, r.groups = 2, r.groups_used = 1; };
  EXPECT_NE(refusal(with(kSigmoid, of_groups), small_machine()).find("groups of 128 experts"), std::string::npos);
  EXPECT_NE(refusal(with(kSoftmax, [](TinyExperts& r) { r.width = 4000; }), small_machine()).find("sram.matrix_tiles"),
            std::string::npos);
  EXPECT_NE(refusal(with(kSigmoid, [](TinyExperts& r) { r.count = 12; }), small_machine()).find("powers of two"),
            std::string::npos);
}

}  // namespace
}  // namespace dllm::npu
