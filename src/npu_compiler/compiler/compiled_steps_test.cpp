// Compiled programs on the functional machine against the reference executor: every value of the graph, bit for bit.

#include "npu_compiler/testing/reference/bench.h"

namespace dllm::npu {
namespace {

using test::Bench, test::TinyShape, test::format, test::range, test::small_machine, test::three_steps;

struct Case {
  std::string name;
  TinyShape shape;
  MachineConfig machine;
  bool optional = true;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

template <class Change>
MachineConfig machine(const Change& change) {
  MachineConfig m = small_machine();
  change(m);
  return m;
}

std::vector<Case> long_head_cases() {
  // As phones: MLEN and HLEN are half of VLEN.
  const MachineConfig half_slab = machine([](MachineConfig& m) {
    m.mlen = m.hlen = 16, m.vlen = 32;
    m.mram_elements *= 2;
    m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("mxint8:8:ocp");
  });
  return {
      {"long_heads", {.heads = 4, .kv_heads = 2, .head_dim = 32, .rope_dims = 32}, machine([](MachineConfig& m) {
         m.mlen = m.vlen = m.hlen = 16;
       })},
      {"long_heads_two_tiles_in_a_row",
       {.heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 32, .layout = RopeLayout::kInterleaved},
       machine([](MachineConfig& m) {
         m.mlen = m.hlen = 8, m.vlen = 16;
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("mxint8:8:ocp");
       })},
      {"long_head_norms",
       {.heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 32, .head_norms = true},
       machine([](MachineConfig& m) { m.mlen = m.vlen = m.hlen = 16; })},
      {"long_norm_of_one_key_head",
       {.heads = 2, .kv_heads = 1, .head_dim = 32, .rope_dims = 32, .head_norms = true},
       machine([](MachineConfig& m) { m.mlen = m.vlen = m.hlen = 16; })},
      {"long_heads_bf16", {.heads = 2, .kv_heads = 1, .head_dim = 32, .rope_dims = 32}, machine([](MachineConfig& m) {
         m.mlen = m.vlen = m.hlen = 16;
         m.weight = m.matrix_kv = m.vector_kv = m.matrix_input = format("bf16");
       })},
      {"heads_of_one_slab", {.heads = 4, .kv_heads = 2, .head_dim = 32, .rope_dims = 32}, half_slab},
      {"heads_of_one_slab_interleaved",
       {.heads = 4, .kv_heads = 2, .head_dim = 32, .rope_dims = 32, .layout = RopeLayout::kInterleaved},
       half_slab},
      {"heads_of_one_slab_in_part", {.heads = 2, .kv_heads = 2, .head_dim = 32, .rope_dims = 12}, half_slab},
      {"long_heads_rotate_one_slab", {.heads = 2, .kv_heads = 2, .head_dim = 64, .rope_dims = 32}, half_slab},
      {"long_heads_rotate_a_part",
       {.heads = 2, .kv_heads = 2, .head_dim = 64, .rope_dims = 24, .head_norms = true},
       half_slab},
  };
}

std::vector<Case> turned_cases() {
  const MachineConfig small = small_machine();
  return {
      {"turned", {.ffn = 96, .turns = 16, .down_turns = 32}, small},
      {"turned_short_heads", {.head_dim = 12, .ffn = 80, .rope_dims = 12, .turns = 4, .down_turns = 16}, small},
      {"turned_pairs", {.heads = 6, .ffn = 96, .layout = RopeLayout::kInterleaved, .turns = 8, .down_turns = 4}, small},
      {"turned_long_heads",
       {.heads = 4, .kv_heads = 2, .head_dim = 32, .ffn = 64, .rope_dims = 32, .turns = 16, .down_turns = 8},
       machine([](MachineConfig& m) { m.mlen = m.vlen = m.hlen = 16; })},
  };
}

std::vector<Case> cases() {
  const MachineConfig small = small_machine();
  std::vector<Case> all = {
      {"dense", {.heads = 4, .kv_heads = 4}, small},
      {"no_biases", {.heads = 4, .kv_heads = 4, .biases = false}, small, false},
      {"grouped", {}, small},
      {"three_heads_per_key", {.heads = 6, .kv_heads = 2}, small},
      {"one_key_head", {.heads = 5, .kv_heads = 1}, small},
      {"many_heads", {.heads = 9, .kv_heads = 3}, small},
      {"short_heads", {.head_dim = 12, .rope_dims = 12}, small},
      {"partial_rotation", {.rope_dims = 12}, small},
      {"interleaved", {.layout = RopeLayout::kInterleaved}, small},
      {"head_norms_of_two_slabs",
       {.heads = 8, .kv_heads = 8, .head_dim = 12, .rope_dims = 8, .head_norms = true},
       small},
      {"head_norms", {.head_dim = 12, .rope_dims = 8, .head_norms = true}, small},
      {"norm_of_one_key_head", {.heads = 5, .kv_heads = 1, .head_dim = 12, .rope_dims = 8, .head_norms = true}, small},
      {"norm_of_one_key_head_interleaved",
       {.heads = 3, .kv_heads = 1, .layout = RopeLayout::kInterleaved, .head_norms = true},
       small},
      {"norms_of_one_head", {.heads = 1, .kv_heads = 1, .head_norms = true}, small},
      {"wide", {.vocab = 200, .width = 160, .ffn = 224}, small},
      {"one_row_is_one_tile", {}, machine([](MachineConfig& m) { m.vlen = 32; })},
      {"array_of_one_head", {}, machine([](MachineConfig& m) { m.mlen = 16; })},
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
  for (const std::vector<Case>& more : {long_head_cases(), turned_cases()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
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
  EXPECT_EQ(refusal(16, 16, 16, {.head_dim = 32, .rope_dims = 16}), "");
  EXPECT_NE(refusal(16, 16, 16, {.head_dim = 64, .rope_dims = 24}).find("array.hlen holds"), std::string::npos);
}

/// What the device's instruction does not compute, with what to do.
TEST(CompiledSteps, OtherHadamardTransformsAreRefused) {
  for (const auto& [turns, down_turns] : {std::pair{12, 0}, {0, 24}, {0, 128}}) {
    const TinyShape shape{.head_dim = 12, .ffn = 384, .rope_dims = 12, .turns = turns, .down_turns = down_turns};
    const Graph graph = test::tiny_graph(shape, {1, 1});
    const auto layout = make_layout(graph, std::vector<bool>(graph.weights.size(), true), small_machine(), 64);
    ASSERT_TRUE(layout) << layout.error().message();
    StepSpec spec;
    spec.sequences.push_back({.positions = {0}, .visible = {{0, 1}}, .scored = {0}, .capacity = 16});
    const auto program = compile_step(graph, *layout, spec, {});
    ASSERT_FALSE(program) << turns << ' ' << down_turns;
    EXPECT_EQ(program.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(program.error().message().find("--rotate-order"), std::string::npos) << program.error().message();
  }
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

/// Sequences that do not fit together run in sequence, in one program.
TEST(CompiledSteps, Parts) {
  MachineConfig machine = small_machine();
  machine.vram_elements = std::uint64_t{64} * 640;
  for (const std::size_t sequences : {1u, 2u, 3u, 4u}) {
    Bench bench({}, machine, 64);
    StepSpec spec;
    std::vector<std::size_t> caches;
    for (std::size_t s = 0; s < sequences; ++s) {
      bench.add_cache(40);
      const auto rows = static_cast<Position>(40 - 4 * s);
      spec.sequences.push_back(bench.sequence(s, range(0, rows), {{0, rows}}, {1, 2, 3, 30 - static_cast<int>(s)}));
      caches.push_back(s);
    }
    const std::size_t parts = bench.run_parts(spec, caches);
    EXPECT_EQ(parts > 1, sequences > 2) << parts << " parts of " << sequences;
    for (SequenceSpec& s : spec.sequences) s.positions = range(8, 16), s.scored = {0, 5};
    bench.run_parts(spec, caches);
  }
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
