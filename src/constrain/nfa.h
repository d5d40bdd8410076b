#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "constrain/pattern.h"

namespace dllm::constrain {

/// A nondeterministic automaton over bytes (Thompson's construction).
struct Nfa {
  struct Edge {
    std::uint8_t first, last;  ///< bytes, both included
    std::int32_t to;
  };
  struct State {
    std::vector<Edge> edges{};
    std::vector<std::int32_t> silent{};  ///< states that are reached without a byte
  };
  std::vector<State> states;
  std::int32_t start = 0;
  std::int32_t accepting = 0;
};

/// nullopt: it would have more than `most` states.
std::optional<Nfa> build_nfa(const Pattern& pattern, std::int32_t most);

}  // namespace dllm::constrain
