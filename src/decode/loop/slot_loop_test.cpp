#include "decode/loop/slot_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "decode/testing/fake_backend.h"
#include "decode/testing/run_method.h"

namespace dllm {
namespace {

using test::FakeBackend;

constexpr Position kSlotsPromptEnd = 5, kLength = 32;
constexpr TokenId kKinds = 7;

struct SlotRun {
  std::vector<TokenId> tokens;  ///< of the answer; -1: masked
  std::optional<Position> stop;
  std::int32_t nfe = 0;
};

SlotRun run_slots(std::uint64_t seed, std::vector<TokenId> stop_ids, bool exact_length) {
  ModelDesc desc = test::masked_desc(1);
  desc.slot_length = 4;
  desc.modes = {DecodingMode::kSlots};
  FakeBackend backend(desc);
  backend.tamper = [](RowScore& score) { score.token %= kKinds; };
  ModeLoopOptions options;
  options.mode.mode = DecodingMode::kSlots;
  options.mode.slots = {.slot_threshold = 0.5, .token_threshold = 0.3};
  options.block_length = 16;
  options.stop_ids = std::move(stop_ids);
  options.exact_length = exact_length;
  std::vector<TokenId> prompt;
  for (Position p = 0; p < kSlotsPromptEnd; ++p) prompt.push_back(static_cast<TokenId>(splitmix64(seed) % 50));
  Canvas canvas(prompt, kLength, 99);
  const auto cache = *backend.make_cache(canvas.size());
  SlotLoop loop(backend.desc(), std::move(canvas), options, *cache);
  SlotRun run;
  for (auto batch = loop.prepare(); !batch.empty() && run.nfe < 1000; batch = loop.prepare(), ++run.nfe) {
    const auto step = loop.absorb(*backend.forward(batch));
    EXPECT_TRUE(step) << step.error().message();
    if (!step) break;
  }
  for (Position p = kSlotsPromptEnd; p < kSlotsPromptEnd + kLength; ++p)
    run.tokens.push_back(loop.canvas().masked(p) ? -1 : loop.canvas().token(p));
  run.stop = loop.stop_position();
  return run;
}

TEST(SlotLoop, FillsAnswersOfAFixedLength) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const SlotRun run = run_slots(seed, {3}, true);
    EXPECT_EQ(std::ranges::count(run.tokens, -1), 0);
    EXPECT_LT(run.nfe, 4 * kLength);
  }
}

/// Of slots that are filled in any order: nothing in front of a stop token is left masked.
TEST(SlotLoop, AStopTokenEndsTheAnswer) {
  int stopped = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (TokenId stop = 0; stop < kKinds; ++stop) {
      const SlotRun run = run_slots(seed, {stop}, false);
      const auto first = std::ranges::find(run.tokens, stop);
      if (first == run.tokens.end()) {
        EXPECT_EQ(run.stop, std::nullopt);
        EXPECT_EQ(std::ranges::count(run.tokens, -1), 0);
        continue;
      }
      ++stopped;
      EXPECT_EQ(run.stop, kSlotsPromptEnd + static_cast<Position>(first - run.tokens.begin())) << seed << ' ' << stop;
      EXPECT_EQ(std::count(run.tokens.begin(), first, -1), 0) << seed << ' ' << stop;
      EXPECT_LT(run.nfe, 4 * kLength);
    }
  EXPECT_GT(stopped, 100);
}

}  // namespace
}  // namespace dllm
