// What a device commits between two passes, against the definition of the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "vulkan/testing/operator_rig.h"
#include "vulkan/unroll_arguments.h"

namespace dllm::vulkan {
namespace {

struct DeviceCandidate {
  std::uint32_t token = 0, fit = 1;  // 0: it waits, 1: eligible, 2: unsure
  double rest = 0;
};
static_assert(sizeof(DeviceCandidate) == kCandidateBytes);

/// Rows of one sequence, and its rule.
struct Decision {
  std::vector<UnrollRow> rows;
  std::vector<DeviceCandidate> candidates;
  UnrollSequence rule;

  /// The rows that the rule takes; nothing: a choice is too close to call.
  std::optional<std::vector<bool>> taken() const {
    std::vector<std::size_t> fit;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].open == 0) continue;
      if (candidates[i].fit == 2) return std::nullopt;
      if (candidates[i].fit == 1) fit.push_back(i);
    }
    std::vector<bool> taken(rows.size(), false);
    if (fit.empty()) return taken;
    std::ranges::stable_sort(fit, {}, [this](std::size_t i) { return candidates[i].rest; });
    const auto rest = [&](std::size_t place) { return candidates[fit[place]].rest; };
    if (rule.by_counts != 0) {
      const std::size_t most = std::min<std::size_t>(rule.counts[0], fit.size());
      if (most < fit.size() && rest(most) - rest(most - 1) <= 1e-9 * rest(most)) return std::nullopt;
      for (std::size_t i = 0; i < most; ++i) taken[fit[i]] = true;
      return taken;
    }
    const double bound = std::min(rule.threshold, 1 / (1 + rest(0)) - rule.tie);
    for (std::size_t i = 0; i < fit.size(); ++i) {
      const double confidence = 1 / (1 + rest(i));
      if (std::abs(confidence - bound) <= 1e-9) return std::nullopt;
      taken[fit[i]] = confidence > bound;
    }
    return taken;
  }

  bool ends(const std::vector<bool>& taken) const {
    std::int32_t mask = std::numeric_limits<std::int32_t>::max(), stop = rule.first_stop;
    bool any = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      any = any || taken[i];
      if (!taken[i] && rows[i].open != 0) mask = std::min(mask, rows[i].position);
      if (taken[i] && candidates[i].token == rule.stop[0]) stop = std::min(stop, rows[i].position);
    }
    return !any || mask == std::numeric_limits<std::int32_t>::max() || stop <= mask;
  }
};

Decision drawn(std::mt19937& draw, std::int32_t sequence) {
  Decision one;
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(draw() % n); };
  const std::uint32_t count = 1 + below(90);
  for (std::uint32_t i = 0; i < count; ++i) {
    one.rows.push_back({sequence, -1, static_cast<std::int32_t>(100 + i), below(5) != 0 ? 1U : 0U, -1, {}});
    one.candidates.push_back(
        {below(40), below(9) != 0 ? 1U : 0U, std::exp(static_cast<double>(below(4000)) / 400 - 7)});
    // Equal confidences, of which the position would decide.
    if (i > 0 && below(30) == 0) one.candidates[i].rest = one.candidates[below(i)].rest;
    if (below(1500) == 0) one.candidates[i].fit = 2;
  }
  one.rule.count = static_cast<std::int32_t>(count);
  one.rule.by_counts = below(2);
  one.rule.threshold = static_cast<double>(1 + below(120)) / 100;
  one.rule.tie = 1e-5;
  one.rule.counts[0] = 1 + below(6);
  one.rule.stops = 1;
  one.rule.stop[0] = 3;
  one.rule.first_stop = 1000;
  if (below(8) == 0) {
    // A position with a stop token is no mask.
    const std::uint32_t place = below(count);
    one.rule.first_stop = static_cast<std::int32_t>(100 + place);
    one.rows[place].open = 0;
  }
  return one;
}

class UnrollRules : public test::OnDevice {};

TEST_F(UnrollRules, AreThoseOfTheDecodersUnlessTooCloseToCall) {
  std::mt19937 draw(7);
  int went_on = 0, ended = 0, close = 0;
  for (int round = 0; round < 120; ++round) {
    test::OperatorRig rig;
    std::vector<Decision> all;
    std::vector<UnrollRow> rows;
    std::vector<DeviceCandidate> candidates;
    std::vector<UnrollSequence> sequences;
    for (std::int32_t s = 0; s < 1 + round % 3; ++s) {
      all.push_back(drawn(draw, s));
      all.back().rule.first = static_cast<std::int32_t>(rows.size());
      sequences.push_back(all.back().rule);
      rows.insert(rows.end(), all.back().rows.begin(), all.back().rows.end());
      candidates.insert(candidates.end(), all.back().candidates.begin(), all.back().candidates.end());
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    UnrollState state;
    state.passes = 4;
    state.sequences = static_cast<std::uint32_t>(all.size());
    state.rows = static_cast<std::uint32_t>(count);
    state.launches = 2;
    Operators::CommitPlaces places;
    places.at = {rig.put(std::vector{state}), rig.put(sequences), rig.put(rows),
                 rig.put(std::vector<std::uint32_t>(22, 5))};
    places.candidates = rig.put(candidates);
    places.room = count;
    places.pass_bytes = count * (cpu::kMostAsked * 4 + 4);
    const std::int64_t before = count * cpu::kMostAsked;
    places.kept = rig.room(before + count);
    rig.run(test::OperatorRig::operators().commit_rows(places), 3);

    bool goes_on = true;
    std::vector<std::int32_t> expected;
    for (const Decision& one : all) {
      const auto taken = one.taken();
      close += taken ? 0 : 1;
      goes_on = goes_on && taken && !one.ends(*taken);
      for (std::size_t i = 0; goes_on && i < one.rows.size(); ++i)
        expected.push_back((*taken)[i] ? static_cast<std::int32_t>(one.candidates[i].token) : -1);
    }
    if (!goes_on) expected.assign(rows.size(), -1);
    (goes_on ? went_on : ended) += 1;
    const UnrollState after = rig.get<UnrollState>(places.at.state, 1).front();
    EXPECT_EQ(after.halted, goes_on ? 0U : 1U) << round;
    EXPECT_EQ(after.ran, 1U);
    EXPECT_EQ(after.pass, goes_on ? 1U : 0U);
    const auto kept = rig.get<std::int32_t>(places.kept, before + count);
    EXPECT_EQ(std::vector(kept.begin() + before, kept.end()), expected) << round;
    const auto counts = rig.get<std::uint32_t>(places.at.counts, 22);
    EXPECT_EQ(counts[0] + counts[1] + counts[16] + counts[21], goes_on ? 20U : 0U) << "a pass without work follows";
    EXPECT_EQ(counts[2], 5U);
    const auto left = rig.get<UnrollRow>(places.at.rows, count);
    for (std::size_t i = 0; i < left.size(); ++i)
      EXPECT_EQ(left[i].open, expected[i] < 0 ? rows[i].open : 0U) << round << " " << i;
  }
  EXPECT_GT(went_on, 20);
  EXPECT_GT(ended, 5);
  EXPECT_GT(close, 3);
}

}  // namespace
}  // namespace dllm::vulkan
