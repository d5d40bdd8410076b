#include "vulkan/passes_ahead.h"

#include <gtest/gtest.h>

namespace dllm::vulkan {
namespace {

/// Whether a pass that has run with the request of `ran` answers `asked`.
bool is_taken(const SequenceStep& ran, const SequenceStep& asked) {
  PassesAhead ahead;
  ahead.last = ran;
  ahead.passes.emplace_back();
  return ahead.take(asked).has_value();
}

TEST(PassesAhead, AreOfOneSampling) {
  const SequenceStep ran;
  EXPECT_TRUE(is_taken(ran, ran));
  std::size_t count = 0;
  Sampling::each(ran.request, [&](const auto&) { ++count; });
  for (std::size_t changed = 0; changed < count; ++changed) {
    SequenceStep asked;
    std::size_t i = 0;
    Sampling::each(asked.request, [&](auto& member) {
      if (i++ == changed) member += 1;
    });
    EXPECT_FALSE(is_taken(ran, asked)) << "member " << changed;
  }
}

}  // namespace
}  // namespace dllm::vulkan
