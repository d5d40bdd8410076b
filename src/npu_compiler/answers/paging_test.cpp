#include "npu_compiler/answers/paging.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "npu_compiler/runtime/staging.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// Operators that each read one weight and the activation of the one before.
MemoryProgram chain(const std::vector<std::int64_t>& weights, std::int64_t activation) {
  MemoryProgram program;
  program.tensors.push_back({.name = "x", .bytes = activation});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    program.tensors.push_back({.name = "w" + std::to_string(i), .bytes = weights[i], .lasting = true});
    program.ops.push_back({"op" + std::to_string(i), 1e-3, {static_cast<std::int32_t>(i + 1), 0}, {0}});
  }
  return program;
}

TEST(Paging, WhatFitsIsMappedOnce) {
  const auto paging = page_program(chain({kMiB, kMiB, kMiB}, kMiB), {.window_bytes = 4 * kMiB, .map_us = 100});
  ASSERT_TRUE(paging) << paging.error().what;
  EXPECT_EQ(paging->mapped, 0);
  EXPECT_EQ(paging->seconds, 0);
  EXPECT_EQ(paging->pinned_bytes, kMiB);
}

/// A cycle that is one buffer too long for the window evicts every buffer before it is used again.
TEST(Paging, ACycleTooLongIsMappedEveryTime) {
  const MemoryLimits limits{.window_bytes = 4 * kMiB, .map_us = 100, .map_us_per_page = 0.5};
  const auto paging = page_program(chain({kMiB, kMiB, kMiB, kMiB}, kMiB), limits);
  ASSERT_TRUE(paging) << paging.error().what;
  EXPECT_EQ(paging->mapped, 4);
  EXPECT_EQ(paging->evictions, 4);
  EXPECT_DOUBLE_EQ(paging->seconds, 4 * staging_seconds(limits, kMiB));
}

TEST(Paging, MappingsFail) {
  const auto message = [](const MemoryProgram& program, const MemoryLimits& limits) {
    const auto paging = page_program(program, limits);
    return paging ? std::string() : paging.error().what;
  };
  EXPECT_NE(message(chain({kMiB}, 5 * kMiB), {.window_bytes = 4 * kMiB}).find("no gap"), std::string::npos);
  EXPECT_NE(message(chain({3 * kMiB}, 2 * kMiB), {.window_bytes = 4 * kMiB}).find("w0"), std::string::npos);
  EXPECT_NE(message(chain({3 * kMiB}, kMiB), {.window_bytes = 4 * kMiB, .mapping_bytes = 2 * kMiB}).find("largest"),
            std::string::npos);
  EXPECT_NE(message(chain({kMiB}, kMiB), {.window_bytes = 4 * kMiB, .mappings = 1}).find("1 mappings"),
            std::string::npos);
  EXPECT_EQ(message(chain({kMiB, kMiB}, kMiB), {.window_bytes = 4 * kMiB, .mappings = 2}), "");
}

/// Free memory in pieces: two buffers that one operator reads may fit or not by where the first was put.
TEST(Paging, AFragmentedWindowFails) {
  MemoryProgram program;
  for (const std::int64_t size : {2, 1, 3}) {
    program.tensors.push_back({.name = "w" + std::to_string(size), .bytes = size * kMiB, .lasting = true});
  }
  // The window holds w2 and w1; then w1, in the middle, is read with w3, for which no gap of three is left.
  program.ops = {{"a", 0, {0}, {}}, {"b", 0, {1}, {}}, {"c", 0, {1, 2}, {}}};
  const auto paging = page_program(program, {.window_bytes = 4 * kMiB});
  ASSERT_FALSE(paging);
  EXPECT_NE(paging.error().what.find("free in all"), std::string::npos) << paging.error().what;
  EXPECT_TRUE(page_program(program, {.window_bytes = 5 * kMiB + kMiB}));
}

/// On random programs the planner, if it can place them at all, waits no longer than paging.
TEST(Paging, NeverBeatsThePlanner) {
  int compared = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const auto draw = [&](std::uint32_t i) { return philox4x32({i, 0, 0, 0}, {seed, 7})[0]; };
    std::vector<std::int64_t> weights;
    for (std::uint32_t i = 0; i < 12; ++i) weights.push_back((1 + draw(i) % 8) * (kMiB / 4));
    const MemoryProgram program = chain(weights, kMiB / 2);
    const MemoryLimits limits{
        .window_bytes = (6 + draw(99) % 6) * kMiB, .staging_bytes = 4 * kMiB, .map_us = 50, .map_us_per_page = 2};
    const auto paging = page_program(program, limits);
    const auto plan = plan_memory(program, limits);
    if (!paging || !plan) continue;
    ++compared;
    EXPECT_LE(plan->waiting_seconds, paging->seconds + 1e-9) << seed;
  }
  EXPECT_GT(compared, 30);
}

}  // namespace
}  // namespace dllm::npu
