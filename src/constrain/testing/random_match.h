#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/dfa.h"

namespace dllm::constrain::test {

/// The fewest bytes from each state to the end of a text.
inline std::vector<std::int32_t> distances(const Dfa& dfa) {
  std::vector<std::int32_t> far(static_cast<std::size_t>(dfa.states), 1 << 20);
  const auto distance = [&](std::int32_t s) -> std::int32_t& { return far[static_cast<std::size_t>(s)]; };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::int32_t s = 0; s < dfa.states; ++s) {
      std::int32_t best = dfa.accepting[static_cast<std::size_t>(s)] != 0 ? 0 : distance(s);
      for (int b = 0; b < 256; ++b)
        if (const auto to = dfa.step(s, static_cast<std::uint8_t>(b)); to != Dfa::kDead)
          best = std::min(best, distance(to) + 1);
      changed = changed || best < distance(s);
      distance(s) = best;
    }
  }
  return far;
}

/// A text that the automaton accepts: random bytes for a while, then the shortest way to the end.
inline std::string random_match(const Dfa& dfa, const std::vector<std::int32_t>& far, std::mt19937& rng) {
  const auto distance = [&](std::int32_t s) { return far[static_cast<std::size_t>(s)]; };
  std::string text;
  std::int32_t state = 0, count = 0;
  for (std::size_t budget = rng() % 60;;) {
    if (distance(state) == 0 && (text.size() >= budget || rng() % 8 == 0)) return text;
    std::vector<std::uint8_t> ways;
    for (int b = 0; b < 256; ++b)
      if (const auto to = dfa.step(state, static_cast<std::uint8_t>(b));
          to != Dfa::kDead && dfa.count_after(state, to, count) != Dfa::kTooMany &&
          (text.size() < budget || distance(to) < distance(state)))
        ways.push_back(static_cast<std::uint8_t>(b));
    if (ways.empty()) return text;
    // Letters are many: what ends or structures a text must get its turn.
    std::vector<std::uint8_t> special;
    for (const std::uint8_t b : ways)
      if (std::string_view("\"\\,:[]{}").find(static_cast<char>(b)) != std::string_view::npos) special.push_back(b);
    const auto& from = !special.empty() && rng() % 3 == 0 ? special : ways;
    const std::uint8_t byte = from[rng() % from.size()];
    text += static_cast<char>(byte);
    const std::int32_t to = dfa.step(state, byte);
    count = dfa.count_after(state, to, count);
    state = to;
  }
}

}  // namespace dllm::constrain::test
