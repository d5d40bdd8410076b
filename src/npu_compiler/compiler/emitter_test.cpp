#include "npu_compiler/compiler/emitter.h"

#include <gtest/gtest.h>

#include "npu_core/machine/machine.h"

namespace dllm::npu {
namespace {

MachineState run(Emitter& e) {
  Program program = e.take();
  EXPECT_TRUE(link(program).has_value());
  Machine machine = *Machine::create({});
  const auto result = machine.run(program);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  return std::move(machine.state());
}

TEST(Emitter, ConstantsOfEverySize) {
  for (const std::uint32_t value : {0u, 5u, 262143u, 262144u, 0x12345678u, 0xfffff000u, 0xffffffffu}) {
    Emitter e;
    const Gp r = e.reg(value);
    EXPECT_EQ(run(e).gp[r.index()], value);
  }
}

TEST(Emitter, Additions) {
  for (const std::int64_t delta : {0LL, 1LL, 262143LL, 300000LL, -1LL, -300000LL}) {
    Emitter e;
    const Gp r = e.reg(1000000), s = e.reg();
    e.add(s, r, delta);
    e.add(r, r, delta);
    const MachineState state = run(e);
    EXPECT_EQ(state.gp[r.index()], 1000000u + static_cast<std::uint32_t>(delta));
    EXPECT_EQ(state.gp[s.index()], state.gp[r.index()]);
  }
}

TEST(Emitter, LoopsOfZeroOneAndManyTrips) {
  Emitter e;
  const Gp sum = e.reg(0);
  for (const std::int64_t count : {0, 1, 5}) e.loop(count, [&] { e.loop(3, [&] { e.add(sum, sum, 1); }); });
  EXPECT_EQ(e.position(), 1u + 3 + (3 + 2));  // a loop with one trip is only its body
  EXPECT_EQ(run(e).gp[sum.index()], 18u);
}

TEST(Emitter, RegistersComeBack) {
  Emitter e;
  for (int i = 0; i < 100; ++i) {
    const Gp a = e.reg(), b = e.reg();
    EXPECT_NE(a.index(), 0u);
    EXPECT_NE(a.index(), b.index());
  }
}

/// A control register keeps its value, but a loop's start has two predecessors.
TEST(Emitter, ControlStateIsRememberedOutsideOfLoops) {
  Emitter e;
  e.set_csr(Csr::kBmmRows, 8);
  const std::uint32_t once = e.position();
  e.set_csr(Csr::kBmmRows, 8);
  EXPECT_EQ(e.position(), once);
  e.loop(2, [&] {
    e.set_csr(Csr::kBmmRows, 8);
    e.set_csr(Csr::kBmmRows, 16);
  });
  const std::uint32_t after = e.position();
  e.set_csr(Csr::kBmmRows, 8);
  EXPECT_GT(e.position(), after);
  EXPECT_EQ(run(e).control(Csr::kBmmRows), 8u);
}

TEST(Emitter, RegionsNest) {
  Emitter e;
  e.begin_region("outer");
  e.reg(1);
  e.begin_region("inner");
  e.reg(2);
  e.end_region();
  e.end_region();
  const Program program = e.take();
  ASSERT_EQ(program.regions.size(), 2u);
  EXPECT_EQ(program.regions[0].name, "outer");
  EXPECT_EQ(program.regions[0].end, 2u);
  EXPECT_EQ(program.regions[1].begin, 1u);
}

}  // namespace
}  // namespace dllm::npu
