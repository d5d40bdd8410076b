// The accuracy simulator against the reference executor, on small models and machines: every logit, bit for bit.

#include <memory>

#include "npu_backend/accuracy/executor.h"
#include "npu_compiler/testing/reference/bench.h"

namespace dllm::npu {
namespace {

using accuracy::Executor, accuracy::LaneKvCache, accuracy::NumericsProfile, accuracy::OperandFormat;
using test::TinyExperts, test::TinyShape, test::TinyWeights, test::format, test::range, test::small_machine;

struct Case {
  std::string name;
  TinyShape shape;
  MachineConfig machine;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

MachineConfig with_formats(const char* weight, const char* kv, const char* input) {
  MachineConfig m = small_machine();
  m.weight = format(weight), m.matrix_kv = m.vector_kv = format(kv), m.matrix_input = format(input);
  return m;
}

/// Heads longer than HLEN are cut into pieces; 2 tiles of keys are in vector SRAM at once.
MachineConfig long_head_machine() {
  MachineConfig m = small_machine();
  m.mlen = m.vlen = m.hlen = 16;
  return m;
}

/// As phones: rows hold two tiles of lanes.
MachineConfig half_slab_machine() {
  MachineConfig m = small_machine();
  m.mlen = m.hlen = 16, m.vlen = 32;
  return m;
}

/// Heads of 8 lanes, and so tiles of 8 keys.
MachineConfig short_tile_machine() {
  MachineConfig m = with_formats("mxint8:8:ocp", "mxint8:8:ocp", "mxint8:8:ocp");
  m.hlen = 8;
  return m;
}

std::vector<Case> cases() {
  return {
      {"dense", {.heads = 4, .kv_heads = 4}, small_machine()},
      {"grouped_without_biases", {.biases = false}, small_machine()},
      {"three_heads_per_key", {.heads = 6, .kv_heads = 2}, small_machine()},
      {"short_heads", {.head_dim = 12, .rope_dims = 12}, small_machine()},
      {"interleaved", {.layout = RopeLayout::kInterleaved}, small_machine()},
      {"head_norms", {.head_dim = 12, .rope_dims = 8, .head_norms = true}, small_machine()},
      {"norm_of_one_key_head",
       {.heads = 5, .kv_heads = 1, .head_dim = 12, .rope_dims = 8, .head_norms = true},
       small_machine()},
      {"wide", {.vocab = 200, .width = 160, .ffn = 224}, small_machine()},
      {"long_heads",
       {.heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 32, .head_norms = true},
       long_head_machine()},
      {"heads_of_one_slab", {.heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 32}, half_slab_machine()},
      {"long_heads_rotate_a_part", {.heads = 2, .kv_heads = 2, .head_dim = 64, .rope_dims = 24}, half_slab_machine()},
      {"tiles_shorter_than_a_panel", {.heads = 2, .kv_heads = 2, .head_dim = 8, .rope_dims = 8}, short_tile_machine()},
      {"int4", {}, with_formats("mxint4:16:plena", "mxint4:16:plena", "mxint8:16:ocp")},
      {"fp8", {}, with_formats("mxfp8_e4m3:8:plena", "mxfp8_e4m3:8:plena", "mxfp8_e4m3:8:plena")},
      {"fp4_by_fp6", {}, with_formats("mxfp4_e2m1:32:ocp", "mxint8:16:ocp", "mxfp6_e2m3:16:ocp")},
      {"bf16", {}, with_formats("bf16", "bf16", "bf16")},
      {"integers_by_bf16", {}, with_formats("mxint4:32:ocp", "mxint8:16:ocp", "bf16")},
      {"turned", {.ffn = 96, .turns = 16, .down_turns = 96}, small_machine()},
      {"turned_pairs",
       {.head_dim = 12, .ffn = 72, .rope_dims = 12, .layout = RopeLayout::kInterleaved, .turns = 4, .down_turns = 24},
       small_machine()},
      {"turned_long_heads",
       {.heads = 2, .kv_heads = 2, .head_dim = 32, .ffn = 64, .rope_dims = 32, .turns = 32, .down_turns = 8},
       long_head_machine()},
      {"turned_experts",
       {.routed = {.count = 12, .used = 3, .width = 24, .shared_width = 24, .turns = 24}, .turns = 8},
       small_machine()},
      {"experts", {.routed = {.count = 12, .used = 3, .width = 24}}, small_machine()},
      {"grouped_experts",
       {.routed = {.count = 16,
                   .used = 3,
                   .width = 40,
                   .shared_width = 24,
                   .leading_dense = 1,
                   .score = GateScore::kSigmoid,
                   .bias = true,
                   .groups = 4,
                   .groups_used = 2,
                   .normalize = true,
                   .scale = 2.5f}},
       small_machine()},
  };
}

NumericsProfile profile_of(const MachineConfig& m) {
  NumericsProfile profile;
  profile.weight = *OperandFormat::from_name(mx_format_name(m.weight));
  profile.activation = *OperandFormat::from_name(mx_format_name(m.matrix_input));
  profile.key = profile.value = *OperandFormat::from_name(mx_format_name(m.vector_kv));
  return profile;
}

/// One model on the reference executor and on the simulator.
class Both {
 public:
  Both(const TinyShape& shape, const MachineConfig& machine, int threads)
      : shape_(shape), weights_(tiny_graph(shape, {1, 1}), 7, shape.biases), profile_(profile_of(machine)) {
    auto layout = make_layout(tiny_graph(shape, {1, 1}), weights_.present(), machine, 64);
    if (!layout) throw std::runtime_error(layout.error().message());
    layout_ = std::move(*layout);
    layout_.chunk_tiles = 2;  // small contexts would fit into one chunk
    reference_.emplace(layout_, weights_.views());
    executor_.emplace(tiny_graph(shape, {1, 1}), layout_, weights_.views(), profile_, threads);
    for (int i = 0; i < 2; ++i) {
      caches_.push_back(std::make_unique<reference::Cache>());
      lane_caches_.push_back(std::make_unique<LaneKvCache>(Position{40}, executor_->head_shapes()));
    }
  }

  void step(const std::vector<StepPlan>& plans, const std::vector<std::size_t>& cache_of) {
    StepSpec spec;
    std::vector<SequenceStep> batch(plans.size());
    std::vector<TokenId> tokens;
    std::vector<reference::Cache*> caches;
    for (std::size_t s = 0; s < plans.size(); ++s) {
      batch[s].cache = lane_caches_[cache_of[s]].get();
      batch[s].plan = plans[s];
      caches.push_back(caches_[cache_of[s]].get());
      SequenceSpec sequence;
      for (PlanRow& row : batch[s].plan.rows) {
        row.token = static_cast<TokenId>((tokens.size() * 31 + 5) % static_cast<std::size_t>(shape_.vocab));
        tokens.push_back(row.token);
        sequence.positions.push_back(row.position);
      }
      sequence.visible = plans[s].visible;
      sequence.causal_block = plans[s].causal_block;
      sequence.scored = plans[s].scored;
      spec.sequences.push_back(std::move(sequence));
    }
    const Graph graph = tiny_graph(shape_, {spec.rows(), spec.scored()});
    const reference::StepResult expected = reference_->run(graph, spec, tokens, caches);
    const std::vector<float> got = executor_->forward(graph, batch);
    ASSERT_EQ(got.size(), expected.logits.size() * static_cast<std::size_t>(shape_.vocab));
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(
          got[i],
          bf16_to_f32(
              expected.logits[i / static_cast<std::size_t>(shape_.vocab)][i % static_cast<std::size_t>(shape_.vocab)]))
          << "logit " << i;
  }

 private:
  TinyShape shape_;
  TinyWeights weights_;
  NumericsProfile profile_;
  ModelLayout layout_;
  std::optional<reference::Executor> reference_;
  std::optional<Executor> executor_;
  std::vector<std::unique_ptr<reference::Cache>> caches_;
  std::vector<std::unique_ptr<LaneKvCache>> lane_caches_;
};

StepPlan plan(const std::vector<Position>& positions, std::vector<PositionRange> visible,
              std::vector<std::int32_t> scored, std::int32_t causal_block = 0) {
  StepPlan p;
  for (const Position position : positions) p.rows.push_back({position, 0});
  p.visible = std::move(visible);
  p.causal_block = causal_block;
  p.scored = std::move(scored);
  return p;
}

class AccuracySteps : public testing::TestWithParam<Case> {};

/// A whole canvas and a short one; a causal step of a block; scattered rows with gaps in what they see.
TEST_P(AccuracySteps, EqualTheReference) {
  Both both(GetParam().shape, GetParam().machine, 2);
  both.step({plan(range(0, 37), {{0, 37}}, {1, 2, 3, 30}), plan(range(0, 9), {{0, 9}}, {8})}, {0, 1});
  both.step({plan(range(20, 10), {{0, 37}}, {0, 3, 9}, 4)}, {0});
  both.step({plan({2, 3, 8}, {{0, 5}, {7, 9}}, {}), plan({5, 36}, {{0, 4}, {33, 37}}, {1})}, {1, 0});
}

INSTANTIATE_TEST_SUITE_P(Cases, AccuracySteps, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace dllm::npu
