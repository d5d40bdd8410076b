// The issue stage beside the cycle simulator: when instructions are dispatched, start and are done.

#include "test/issue.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "npu_core/isa/isa.h"

namespace dllm::rtl {
namespace {

std::uint64_t issued(std::uint64_t instructions) {
  return std::getenv("DLLM_RTL_LONG") != nullptr ? 20 * instructions : instructions;  // make nightly
}

void print(const IssueResult& result) {
  std::printf(
      "%llu instructions of %llu programs, %lld cycles, simulator %lld, serial issue %lld; dispatched together "
      "%llu, started together %llu, chained %llu; apart %llu in %llu programs\n",
      static_cast<unsigned long long>(result.instructions), static_cast<unsigned long long>(result.programs),
      static_cast<long long>(result.cycles), static_cast<long long>(result.expected),
      static_cast<long long>(result.serial), static_cast<unsigned long long>(result.together),
      static_cast<unsigned long long>(result.starts_together), static_cast<unsigned long long>(result.chained),
      static_cast<unsigned long long>(result.apart), static_cast<unsigned long long>(result.programs_apart));
}

class RtlIssue : public ::testing::TestWithParam<IssueShape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, RtlIssue, ::testing::ValuesIn(issue_shapes()),
                         [](const auto& shape) { return std::string(name_of(shape.param)); });

TEST_P(RtlIssue, TimesOfTheSimulator) {
  const IssueShape shape = GetParam();
  const IssueResult result = check_issue(shape, issued(5000), 51);
  print(result);
  for (std::size_t op = 0; op < npu::kOpCount; ++op)
    EXPECT_EQ(result.executed.test(op), static_cast<npu::Op>(op) != npu::Op::C_BREAK)
        << npu::info(static_cast<npu::Op>(op)).mnemonic;
  EXPECT_LT(result.cycles, result.serial) << "nothing overlaps";
  // Hardware waits until older instructions have started, and what follows is as late (docs/design/rtl.md). Few ports
  // are not given out in the simulator's order either.
  const bool ports = shape == IssueShape::kPorts;
  EXPECT_LE(result.apart, result.instructions / (ports ? 2 : 4)) << result.first;
  EXPECT_NEAR(static_cast<double>(result.cycles) / static_cast<double>(result.expected), 1, ports ? 0.01 : 0.001);
  if (shape == IssueShape::kNarrow) return;
  EXPECT_GT(result.together, result.instructions / 20);
  EXPECT_GT(result.starts_together, result.instructions / 100);
  EXPECT_GT(result.chained, result.instructions / 50);
}

}  // namespace
}  // namespace dllm::rtl
