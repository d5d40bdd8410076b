// Compiled programs on the functional machine against the reference executor: every value of the graph, bit for bit.

#include <gtest/gtest.h>

#include <cstring>

#include "npu/compiler/testing/tiny_model.h"
#include "npu/compiler/weights_image.h"
#include "npu/machine/machine.h"
#include "npu/reference/executor.h"

namespace dllm::npu {
namespace {

using test::TinyShape;

MxFormat format(const char* name) { return *mx_format_from_name(name); }

/// The smallest machine that has every feature: 2 heads side by side, 2 groups of MLEN lanes in a row.
MachineConfig small_machine() {
  MachineConfig m;
  m.blen = 4, m.mlen = 32, m.vlen = 64, m.hlen = 16;
  m.vram_elements = std::uint64_t{64} * 4096;
  m.mram_elements = std::uint64_t{32 * 32} * 32;
  m.fp_words = m.int_words = 1024;
  m.hbm_bytes = std::uint64_t{1} << 26;
  m.weight = format("mxint8:16:ocp");
  m.matrix_kv = m.vector_kv = format("mxint8:16:ocp");
  m.matrix_input = format("mxint8:16:ocp");
  return m;
}

/// One model on a machine, with the reference beside it.
class Bench {
 public:
  Bench(const TinyShape& shape, const MachineConfig& machine, std::int64_t positions = 64, bool optional = true)
      : shape_(shape), weights_(test::tiny_graph(shape, {1, 1}), 7, optional) {
    auto layout = make_layout(test::tiny_graph(shape, {1, 1}), weights_.present(), machine, positions);
    if (!layout) throw std::runtime_error(layout.error().message());
    layout_ = std::move(*layout);
    machine_.emplace(std::move(*Machine::create(machine)));
    write_weights(test::tiny_graph(shape, {1, 1}), layout_, weights_.views(), machine_->state().hbm.data());
    executor_.emplace(layout_, weights_.views());
  }

  const ModelLayout& layout() const { return layout_; }

  /// A new, empty cache. Its index is the sequence's.
  void add_cache(std::int64_t capacity) {
    const KvLayout kv = *kv_layout(test::tiny_graph(shape_, {1, 1}), layout_, capacity);
    slots_.push_back({next_, capacity});
    next_ += kv.bytes;
    caches_.emplace_back(std::make_unique<reference::Cache>());
  }

  SequenceSpec sequence(std::size_t cache, std::vector<Position> positions, std::vector<PositionRange> visible,
                        std::vector<std::int32_t> scored, std::int32_t causal_block = 0) const {
    return {std::move(positions), std::move(visible),  causal_block,
            std::move(scored),    slots_[cache].first, slots_[cache].second};
  }

  /// Runs the step on both and compares.
  void run(const StepSpec& spec, const std::vector<std::size_t>& cache_of, bool keep_values,
           HeadMode head = HeadMode::kLogits) {
    const Graph graph = test::tiny_graph(shape_, {spec.rows(), spec.scored()});
    auto compiled = compile_step(graph, layout_, spec, {.head = head, .keep_values = keep_values});
    ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
    MachineState& state = machine_->state();
    std::vector<TokenId> tokens;
    for (std::int64_t r = 0; r < spec.rows(); ++r) tokens.push_back(static_cast<TokenId>((r * 31 + 5) % shape_.vocab));
    for (std::size_t r = 0; r < tokens.size(); ++r) state.int_mem[r] = static_cast<std::uint32_t>(tokens[r]);
    for (const HbmBlob& blob : compiled->constants)
      std::memcpy(state.hbm.data() + blob.address, blob.bytes.data(), blob.bytes.size());
    state.reset_registers();
    const auto ran = machine_->run(compiled->program);
    ASSERT_TRUE(ran.has_value()) << ran.error().message();
    std::vector<reference::Cache*> caches;
    for (const std::size_t index : cache_of) caches.push_back(caches_[index].get());
    const reference::StepResult expected = executor_->run(graph, spec, tokens, caches);
    if (keep_values) compare_values(graph, *compiled, expected);
    head == HeadMode::kLogits ? compare_logits(*compiled, expected) : compare_predictions(*compiled, expected);
  }

 private:
  void compare_values(const Graph& graph, const StepProgram& compiled, const reference::StepResult& expected) {
    for (std::size_t id = 0; id < graph.values.size(); ++id) {
      const ValuePlace& place = compiled.values[id];
      for (std::size_t r = 0; r < expected.values[id].size(); ++r)
        for (std::size_t lane = 0; lane < expected.values[id][r].size(); ++lane) {
          const auto vlen = static_cast<std::size_t>(layout_.machine.vlen);
          const std::size_t row =
              static_cast<std::size_t>(place.row) + lane / vlen * static_cast<std::size_t>(place.stride) + r;
          const Bf16 got = machine_->state().vram[row * vlen + lane % vlen];
          ASSERT_EQ(bf16_to_f32(got), bf16_to_f32(expected.values[id][r][lane]))
              << graph.values[id].name << " row " << r << " lane " << lane;
          const auto signless = static_cast<Bf16>(got & 0x7fff);
          if (signless != 0) {
            ASSERT_EQ(got, expected.values[id][r][lane]) << graph.values[id].name << " row " << r << " lane " << lane;
          }
        }
    }
  }

  void compare_predictions(const StepProgram& compiled, const reference::StepResult& expected) {
    for (std::size_t r = 0; r < expected.logits.size(); ++r) {
      const auto one = reference::reduce_logits(expected.logits[r], static_cast<std::size_t>(layout_.machine.vlen));
      EXPECT_EQ(machine_->state().int_mem[compiled.predicted + r], one.token) << "row " << r;
      EXPECT_EQ(machine_->state().fp_mem[compiled.confidence + r], one.confidence) << "row " << r;
      EXPECT_GT(bf16_to_f32(one.confidence), 0.0f);
    }
  }

  void compare_logits(const StepProgram& compiled, const reference::StepResult& expected) {
    const auto vlen = static_cast<std::size_t>(layout_.machine.vlen);
    for (std::size_t r = 0; r < expected.logits.size(); ++r)
      for (std::size_t t = 0; t < expected.logits[r].size(); ++t) {
        const std::size_t at = (t / vlen * static_cast<std::size_t>(compiled.logit_rows) + r) * vlen + t % vlen;
        Bf16 got = 0;
        std::memcpy(&got, machine_->state().hbm.data() + compiled.logits + 2 * at, 2);
        ASSERT_EQ(got, expected.logits[r][t]) << "logit of token " << t << " in row " << r;
      }
  }

  TinyShape shape_;
  test::TinyWeights weights_;
  ModelLayout layout_;
  std::optional<Machine> machine_;
  std::optional<reference::Executor> executor_;
  std::vector<std::pair<std::uint64_t, std::int64_t>> slots_;
  std::uint64_t next_ = std::uint64_t{1} << 25;
  std::vector<std::unique_ptr<reference::Cache>> caches_;
};

std::vector<Position> range(Position first, Position count) {
  std::vector<Position> positions;
  for (Position p = first; p < first + count; ++p) positions.push_back(p);
  return positions;
}

/// A whole canvas, then a block of it that sees everything, then rows here and there.
void three_steps(Bench& bench, bool keep_values) {
  bench.add_cache(40);
  bench.add_cache(33);
  bench.run(
      {{bench.sequence(0, range(0, 37), {{0, 37}}, {1, 2, 3, 30}), bench.sequence(1, range(0, 9), {{0, 9}}, {8})}},
      {0, 1}, keep_values);
  bench.run({{bench.sequence(0, range(20, 10), {{0, 37}}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}}, {0}, keep_values);
  bench.run({{bench.sequence(1, {2, 3, 8}, {{0, 5}, {7, 9}}, {}), bench.sequence(0, {5, 36}, {{0, 37}}, {1})}}, {1, 0},
            keep_values);
}

struct Case {
  std::string name;
  TinyShape shape;
  MachineConfig machine;
  bool optional = true;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  const auto machine = [](auto change) {
    MachineConfig m = small_machine();
    change(m);
    return m;
  };
  const MachineConfig small = small_machine();
  return {
      {"dense", {.heads = 4, .kv_heads = 4}, small},
      {"no_biases", {.heads = 4, .kv_heads = 4, .biases = false}, small, false},
      {"grouped", {}, small},
      {"three_heads_per_key", {.heads = 6, .kv_heads = 2}, small},
      {"one_key_head", {.heads = 5, .kv_heads = 1}, small},
      {"many_heads", {.heads = 9, .kv_heads = 3}, small},
      {"short_heads", {.head_dim = 12, .rope_dims = 12}, small},
      {"partial_rotation", {.rope_dims = 12}, small},
      {"interleaved", {.layout = RopeLayout::kInterleaved}, small},
      {"head_norms", {.head_dim = 12, .rope_dims = 8, .head_norms = true}, small},
      {"wide", {.vocab = 200, .width = 160, .ffn = 224}, small},
      {"one_row_is_one_tile", {}, machine([](MachineConfig& m) { m.vlen = 32; })},
      {"array_of_one_head", {}, machine([](MachineConfig& m) { m.mlen = 16; })},
      {"long_heads", {.heads = 4, .kv_heads = 2, .head_dim = 32, .rope_dims = 32}, machine([](MachineConfig& m) {
         m.mlen = m.vlen = m.hlen = 16;
       })},
      {"long_heads_two_tiles_in_a_row",
       {.heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 32, .layout = RopeLayout::kInterleaved},
       machine([](MachineConfig& m) {
         m.mlen = m.hlen = 8, m.vlen = 16;
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("mxint8:8:ocp");
       })},
      {"long_heads_bf16", {.heads = 2, .kv_heads = 1, .head_dim = 32, .rope_dims = 32}, machine([](MachineConfig& m) {
         m.mlen = m.vlen = m.hlen = 16;
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("bf16");
       })},
      {"larger_blocks", {}, machine([](MachineConfig& m) { m.blen = 16, m.mlen = 64, m.vlen = 64; })},
      {"int4", {}, machine([](MachineConfig& m) { m.weight = m.matrix_kv = m.vector_kv = format("mxint4:16:plena"); })},
      {"fp8", {}, machine([](MachineConfig& m) {
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("mxfp8_e4m3:8:plena");
       })},
      {"fp4_by_fp6", {}, machine([](MachineConfig& m) {
         m.weight = format("mxfp4_e2m1:32:ocp"), m.matrix_input = format("mxfp6_e2m3:16:ocp");
       })},
      {"bf16", {}, machine([](MachineConfig& m) {
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("bf16");
       })},
      {"small_weight_buffers", {.vocab = 300, .width = 160, .ffn = 224}, machine([](MachineConfig& m) {
         m.mram_elements = std::uint64_t{32 * 32} * 16;
       })},
  };
}

class CompiledSteps : public testing::TestWithParam<Case> {};

TEST_P(CompiledSteps, EveryValueEqualsTheReference) {
  Bench bench(GetParam().shape, GetParam().machine, 64, GetParam().optional);
  three_steps(bench, true);
}

TEST_P(CompiledSteps, SharedBuffersChangeNothing) {
  Bench bench(GetParam().shape, GetParam().machine, 64, GetParam().optional);
  three_steps(bench, false);
}

INSTANTIATE_TEST_SUITE_P(Models, CompiledSteps, testing::ValuesIn(cases()), [](const auto& p) { return p.param.name; });

/// What a device lacks for longer heads, by the key of its profile.
TEST(CompiledSteps, LongHeadsNeedAFittingArray) {
  const auto refusal = [](int mlen, int vlen, int hlen, TinyShape shape) {
    MachineConfig m = small_machine();
    m.mlen = mlen, m.vlen = vlen, m.hlen = hlen;
    m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("mxint8:8:ocp");
    const Graph graph = test::tiny_graph(shape, {1, 1});
    const auto layout = make_layout(graph, std::vector<bool>(graph.weights.size(), true), m, 64);
    return layout ? std::string() : layout.error().message();
  };
  const TinyShape shape{.head_dim = 32, .rope_dims = 32};
  EXPECT_EQ(refusal(16, 16, 16, shape), "");
  EXPECT_NE(refusal(32, 64, 16, shape).find("array.hlen=32"), std::string::npos);
  EXPECT_NE(refusal(16, 16, 8, shape).find("array.hlen=16"), std::string::npos);
  EXPECT_NE(refusal(16, 64, 16, shape).find("array.vlen=16"), std::string::npos);
  EXPECT_NE(refusal(16, 16, 16, {.head_dim = 32, .rope_dims = 16}).find("array.vlen=8"), std::string::npos);
}

/// Logits never leave the chip.
TEST(CompiledSteps, ReducedHead) {
  for (const std::int64_t vocab : {200, 192, 40}) {
    Bench bench({.vocab = vocab}, small_machine());
    bench.add_cache(40);
    bench.run({{bench.sequence(0, range(0, 37), {{0, 37}}, {1, 2, 3, 30, 31})}}, {0}, false, HeadMode::kReduced);
    bench.run({{bench.sequence(0, range(5, 9), {{0, 37}}, {0, 1, 2, 3, 4, 5, 6, 7, 8})}}, {0}, true,
              HeadMode::kReduced);
  }
}

TEST(CompiledSteps, CausalBlocks) {
  Bench bench({}, small_machine());
  bench.add_cache(60);
  bench.run({{bench.sequence(0, range(0, 50), {{0, 50}}, {49}, 8)}}, {0}, true);
  bench.run({{bench.sequence(0, range(30, 12), {{0, 42}}, {0, 5}, 1)}}, {0}, true);
}

/// More keys than scores fit: softmax over chunks.
TEST(CompiledSteps, OnlineSoftmax) {
  MachineConfig machine = small_machine();
  machine.mram_elements = std::uint64_t{32 * 32} * 16;
  Bench bench({}, machine, 256);
  EXPECT_EQ(bench.layout().chunk_tiles, 1);
  bench.add_cache(250);
  bench.run({{bench.sequence(0, range(0, 100), {{0, 100}}, {3}, 16)}}, {0}, true);
  bench.run({{bench.sequence(0, range(90, 20), {{0, 40}, {64, 110}}, {1, 2})}}, {0}, true);
  machine.mram_elements = std::uint64_t{32 * 32} * 48;
  machine.vram_elements *= 4;
  Bench several({}, machine, 256);
  EXPECT_GT(several.layout().chunk_tiles, 1);
  EXPECT_LT(several.layout().chunk_tiles, 7);
  several.add_cache(250);
  several.run({{several.sequence(0, range(0, 250), {{0, 250}}, {3})}}, {0}, true);
}

}  // namespace
}  // namespace dllm::npu
