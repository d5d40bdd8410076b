#include "decode/window/draft_window.h"

#include <gtest/gtest.h>

namespace dllm {
namespace {

TEST(DraftWindow, DoublesAndHalvesWithinItsBounds) {
  DraftWindow window({.draft_min = 8, .draft_max = 32}, nullptr);
  const auto next = [&] { return window.next(1000, 100); };
  EXPECT_EQ(next(), 8);
  window.observe(8, 8, false);
  EXPECT_EQ(next(), 16);
  window.observe(16, 16, false);
  window.observe(32, 32, false);
  EXPECT_EQ(next(), 32);
  window.observe(32, 17, false);
  EXPECT_EQ(next(), 32) << "more than half";
  window.observe(32, 16, true);
  EXPECT_EQ(next(), 32) << "the answer ended";
  window.observe(32, 16, false);
  EXPECT_EQ(next(), 16);
  window.observe(16, 1, false);
  window.observe(8, 1, false);
  EXPECT_EQ(next(), 8);
  EXPECT_EQ(window.next(3, 100), 3);
}

TEST(DraftWindow, FollowsTheCostOfPasses) {
  const DraftOptions options{.draft_min = 2, .draft_max = 32, .draft_objective = DraftObjective::kRate};
  const LatencyTable flat({{1, 10}, {32, 10.5}}, 0), steep({{1, 1}, {32, 32}}, 0);
  DraftWindow cheap(options, &flat), dear(options, &steep), wrong(options, &flat);
  EXPECT_GT(cheap.next(1000, 100), 8) << "rows cost next to nothing";
  EXPECT_EQ(dear.next(1000, 100), 1) << "each row costs a pass";
  EXPECT_EQ(cheap.next(4, 100), 4);
  for (int i = 0; i < 30; ++i) wrong.observe(8, 1, false);
  EXPECT_EQ(wrong.next(1000, 100), 1) << "drafts are never right";
  for (int i = 0; i < 16; ++i) wrong.observe(1, 1, false);
  EXPECT_GT(wrong.next(1000, 100), 1) << "now and then they are tried again";
}

TEST(DraftWindow, ADrafterBoundsItsRoundsAndCostsItsOwn) {
  DraftWindow bounded({.draft_min = 8, .draft_max = 32}, nullptr, {.block = 6, .cost = 0.2});
  EXPECT_EQ(bounded.next(1000, 100), 6);
  bounded.observe(6, 6, false);
  EXPECT_EQ(bounded.next(1000, 100), 6);
  const DraftOptions rate{.draft_min = 2, .draft_max = 32, .draft_objective = DraftObjective::kRate};
  const LatencyTable flat({{1, 10}, {32, 10.5}}, 0);
  EXPECT_GT(DraftWindow(rate, &flat, {.block = 16, .cost = 0.1}).next(1000, 100), 8);
  EXPECT_LE(DraftWindow(rate, &flat, {.block = 16, .cost = 0.1}).next(1000, 100), 16);
  EXPECT_EQ(DraftWindow(rate, &flat, {.block = 16, .cost = 50}).next(1000, 100), 1) << "a drafter that never pays";
}

}  // namespace
}  // namespace dllm
