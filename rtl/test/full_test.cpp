// Random programs over every vector, scalar and control instruction: values, control registers and time, with traps.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "npu_core/assembler/assembler.h"
#include "npu_core/device/profile.h"
#include "test/checked.h"
#include "test/engine.h"
#include "test/full_writer.h"

namespace dllm::rtl {
namespace {

using npu::Bf16;

/// V_TOPK with 128 experts reads 16 rows of 8 lanes from the highest row that programs name.
constexpr std::size_t kFilledRows = 40;

void fill_all(npu::MachineState& state, Vectors& random) {
  const auto lanes = static_cast<std::size_t>(state.config.vlen);
  const auto some_row = [&](std::size_t row) {
    const std::vector<Bf16> values = random.row(state.config.vlen);
    std::copy(values.begin(), values.end(), state.vram.data() + row * lanes);
  };
  for (std::size_t row = 0; row < kFilledRows; ++row) some_row(row);
  for (std::size_t row = EngineShape::kRows - 20; row < EngineShape::kRows; ++row) some_row(row);
  for (std::size_t row = 3; row < kFilledRows; row += 4)
    for (std::size_t i = 0; i < lanes; ++i)
      state.vram[row * lanes + i] = random.one_in(2) ? Bf16{0x3f80} : random.one_in(4) ? Bf16{0x8000} : Bf16{0};
  state.reach_hbm(state.config.hbm_bytes);
  for (std::uint64_t i = 0; i < state.config.hbm_bytes; ++i) state.hbm[i] = static_cast<std::byte>(random.bits());
  for (std::uint32_t i = 0; i < EngineShape::kFpWords; ++i) state.fp_mem[i] = random.any();
  for (std::uint32_t i = 0; i < EngineShape::kIntWords; ++i)
    state.int_mem[i] = static_cast<std::uint32_t>(random.bits());
}

int lanes_of(Shape shape) { return shape == Shape::k64 ? 64 : 8; }

/// `logits`: rows without NaN and infinity, whose softmax is not degenerate.
EngineResult run_text(const std::string& text, Shape shape, Vectors& random, const RunSettings& settings,
                      bool logits = false) {
  // The device has 64 lanes in its profile: 8 draws of them per cycle take as long as one of 8.
  const npu::Device device = engine_device(shape == Shape::k8Draws ? "8" : "0");
  npu::MachineConfig config = engine_config(lanes_of(shape));
  config.noise = shape == Shape::k8Draws;
  const npu::Program program = checked(npu::assemble(text, {.file = "random"}));
  npu::Machine machine = checked(npu::Machine::create(config)), memory = checked(npu::Machine::create(config));
  fill_all(machine.state(), random);
  for (std::size_t i = 0; logits && i < kFilledRows * static_cast<std::size_t>(config.vlen); ++i)
    machine.state().vram[i] = random.logit();
  memory.state().reach_hbm(config.hbm_bytes);
  std::copy_n(machine.state().hbm.data(), config.hbm_bytes, memory.state().hbm.data());
  return run_engine(machine, memory, device, program, settings);
}

/// The long form of random tests (make nightly) runs this many times as many.
std::uint64_t times() { return std::getenv("DLLM_RTL_LONG") != nullptr ? 20 : 1; }

void expect_same(const EngineResult& result) {
  EXPECT_EQ(result.wrong, 0u) << result.first;
  EXPECT_EQ(result.units_apart, 0u) << result.first;
  std::printf("%llu instructions, %lld cycles, simulator %lld; loops alone %llu, port %llu\n",
              static_cast<unsigned long long>(result.instructions), static_cast<long long>(result.cycles),
              static_cast<long long>(result.expected), static_cast<unsigned long long>(result.loops_alone),
              static_cast<unsigned long long>(result.port_waits));
}

class RtlAll : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, RtlAll, ::testing::Values(Shape::k8, Shape::k64, Shape::k8Draws), [](const auto& one) {
  return one.param == Shape::k8 ? "Lanes8" : one.param == Shape::k64 ? "Lanes64" : "Draws";
});

TEST_P(RtlAll, InstructionsAsTheMachineAndTheSimulator) {
  expect_same(check_all(GetParam(),
                        times() * (GetParam() == Shape::k8    ? 100000
                                   : GetParam() == Shape::k64 ? 4000
                                                              : 30000),
                        21));
}

TEST_P(RtlAll, TrapsWhereAndWhyTheMachineDoes) {
  std::array<int, 8> counts = {};
  const int programs = static_cast<int>(times()) * (GetParam() == Shape::k8 ? 600 : 100);
  const EngineResult result = check_traps(GetParam(), programs, 22, counts);
  EXPECT_EQ(result.wrong, 0u) << result.first;
  for (const TrapCode code :
       {TrapCode::kNone, TrapCode::kRow, TrapCode::kWord, TrapCode::kLength, TrapCode::kLoop, TrapCode::kValue})
    EXPECT_GE(counts[static_cast<std::size_t>(code)], programs / 100) << static_cast<int>(code);
}

TEST(RtlRouter, SoftmaxOfLogits) {
  const EngineResult result = check_router(40);
  EXPECT_EQ(result.wrong, 0u) << result.first;
  EXPECT_EQ(result.units_apart, 0u) << result.first;
}

/// V_RED_DRAW of tokens 0 to 7 at temperature 3, of which token 5 has the given logit and the others 0.
EngineResult draw_of_one(int logit, std::uint32_t precision, std::uint32_t tokens) {
  std::string text = fmt::format("S_LI_FP f2, {}\nli gp2, 0x40080000\nC_SET_CSR gp2, draw_temperature_high\n", logit);
  for (int i = 0; i < 8; ++i) text += fmt::format("S_ST_FP f{}, gp0, {}\n", i == 5 ? 2 : 0, i);
  text += fmt::format("li gp2, {}\nC_SET_CSR gp2, draw_precision\nli gp2, {}\nC_SET_CSR gp2, draw_tokens\n", precision,
                      tokens);
  text += "S_MAP_V_FP gp0, gp0, 0\nS_LI_FP f3, -inf\nV_RED_DRAW gp14, gp0, gp0, f3, f4, gp0\n";
  Vectors random(26);
  return run_text(text, Shape::k8Draws, random, {.waves = "", .may_trap = false, .coverage = nullptr});
}

// Random programs seldom have a token at the end of the vocabulary that would win.
TEST(RtlDraws, TokensBeyondTheVocabulary) {
  for (const std::uint32_t tokens : {4u, 5u, 6u, 8u}) {
    const EngineResult result = draw_of_one(100, 1, tokens);
    EXPECT_EQ(result.wrong, 0u) << tokens << ": " << result.first;
  }
}

// 1 / 3 has other bits in BF16 than in FP32, and a large logit shows them in the key.
TEST(RtlDraws, FactorInThePrecisionOfKeys) {
  for (const std::uint32_t precision : {0u, 1u, 2u})
    for (const int logit : {100, 250, 999}) {
      const EngineResult result = draw_of_one(logit, precision, 8);
      EXPECT_EQ(result.wrong, 0u) << logit << ", precision " << precision << ": " << result.first;
    }
}

// Every instruction of the engine in every corner class that it can have.
TEST(RtlCoverage, InstructionsAndCorners) {
  Coverage coverage;
  std::array<int, 8> counts = {};
  // Rounds until all are covered: usually the first few.
  for (std::uint64_t round = 0; round < 20 && coverage.covered() < coverage.possible(); ++round) {
    check_all(Shape::k8, 10000, 23 + 2 * round, &coverage);
    check_traps(Shape::k8, 200, 24 + 2 * round, counts, &coverage);
  }
  std::string open;
  for (const std::string& name : coverage.missing()) open += name + "\n";
  std::printf("%zu of %zu pairs of instruction and corner class\n", coverage.covered(), coverage.possible());
  EXPECT_EQ(coverage.covered(), coverage.possible()) << open;
}

}  // namespace

EngineResult check_all(Shape shape, std::uint64_t instructions, std::uint64_t seed, Coverage* coverage) {
  Vectors random(seed);
  EngineResult total;
  while (total.instructions < instructions) {
    FullWriter writer(random, lanes_of(shape), shape == Shape::k8Draws);
    for (int i = 0; i < 800; ++i) {
      if (i % 24 == 0) writer.registers();
      if (random.one_in(10))
        writer.loop();
      else
        writer.instruction();
    }
    std::string text = writer.take();
    if (random.one_in(2)) text += "C_BREAK\nS_ADDI_INT gp1, gp1, 1\n";
    total.add(run_text(text, shape, random, {.waves = "", .may_trap = false, .coverage = coverage}));
    if (total.wrong > 0 || total.units_apart > 0) break;
  }
  return total;
}

EngineResult check_router(int instructions) {
  Vectors random(25);
  std::string text;
  for (int i = 0; i < instructions; ++i)
    text += fmt::format("li gp1, {}\nli gp2, {}\nV_TOPK gp2, gp1, gp2, {}\n", 8 * random.below(24), 6 * i % 240, i % 3);
  return run_text(text, Shape::k8, random, {.waves = "", .may_trap = false, .coverage = nullptr}, true);
}

EngineResult check_traps(Shape shape, int programs, std::uint64_t seed, std::array<int, 8>& counts,
                         Coverage* coverage) {
  Vectors random(seed);
  EngineResult total;
  for (int i = 0; i < programs && total.wrong == 0; ++i) {
    FullWriter writer(random, lanes_of(shape), shape == Shape::k8Draws);
    writer.registers();
    for (std::uint32_t n = random.below(8); n > 0; --n) writer.instruction();
    writer.edge();
    if (random.one_in(3)) writer.loop();  // its start is decoded together with the instruction that traps
    for (std::uint32_t n = 1 + random.below(3); n > 0; --n) writer.instruction();
    const std::string text = writer.take();
    const EngineResult one = run_text(text, shape, random, {.waves = "", .may_trap = true, .coverage = coverage});
    ++counts[static_cast<std::size_t>(one.expected_trap.code)];
    total.add(one);
    if (one.wrong > 0) total.first += "\n" + text;
  }
  return total;
}

}  // namespace dllm::rtl
