#include "test/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace dllm::rtl {
namespace {

// One cycle until the first instruction executes, and those that EngineResult explains: no others.
std::int64_t unexplained(const EngineResult& result, std::int64_t programs) {
  return result.cycles - result.expected - programs -
         static_cast<std::int64_t>(result.loops_alone + result.port_waits + result.transfers_longer);
}

void expect_exact(const EngineResult& result) {
  EXPECT_EQ(result.wrong, 0u) << result.first;
  EXPECT_EQ(result.units_apart, 0u) << result.first;
  std::printf("%llu instructions, %lld cycles, simulator %lld; loops alone %llu, port %llu, transfers %llu\n",
              static_cast<unsigned long long>(result.instructions), static_cast<long long>(result.cycles),
              static_cast<long long>(result.expected), static_cast<unsigned long long>(result.loops_alone),
              static_cast<unsigned long long>(result.port_waits),
              static_cast<unsigned long long>(result.transfers_longer));
}

struct Kind {
  ProgramKind kind;
  const char* name;
};

class RtlPrograms : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, RtlPrograms,
                         ::testing::Values(Kind{ProgramKind::kSelect, "Select"}, Kind{ProgramKind::kMap, "Map"},
                                           Kind{ProgramKind::kLanes, "Lanes"},
                                           Kind{ProgramKind::kReductions, "Reductions"},
                                           Kind{ProgramKind::kScalar, "Scalar"}, Kind{ProgramKind::kMixed, "Mixed"}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(RtlPrograms, AsTheMachineAndTheSimulator) {
  expect_exact(check_programs(8, GetParam().kind, 100000, 11));
  expect_exact(check_programs(64, GetParam().kind, 2000, 12));
}

class RtlSampling : public ::testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Forms, RtlSampling,
                         ::testing::Values(std::pair{0, 0}, std::pair{0, 1}, std::pair{1, 0}, std::pair{1, 1},
                                           std::pair{2, 0}, std::pair{2, 1}));

// DLLM_RTL_WAVES names a file for the waveform of the last program that runs (make rtl-wave).
TEST_P(RtlSampling, ProgramsInValuesAndTime) {
  const char* waves = std::getenv("DLLM_RTL_WAVES");
  const EngineResult result = check_sampling(GetParam().first, GetParam().second, waves != nullptr ? waves : "");
  expect_exact(result);
  EXPECT_EQ(unexplained(result, 1), 0);
  EXPECT_LE(static_cast<double>(result.cycles), 1.01 * static_cast<double>(result.expected));
}

}  // namespace
}  // namespace dllm::rtl
