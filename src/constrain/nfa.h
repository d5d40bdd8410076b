#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
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
    std::int32_t loop = 0;               ///< of a counted part: its number, from 1
  };
  struct Loop {
    std::int32_t head = 0;  ///< the state before and after each time
    std::int32_t most = 0;
  };
  std::vector<State> states;
  std::vector<Loop> loops{};
  std::int32_t start = 0;
  std::int32_t accepting = 0;
  std::int64_t visits = 0;  ///< that it took: see NfaLimits
};

struct NfaLimits {
  std::int32_t states = 0;
  std::int64_t visits = 0;               ///< of parts of the pattern
  bool counts = true;                    ///< false: counted parts are repeated, a few times
  std::int32_t product_states = 10'000;  ///< of an automaton that is a factor of another, or their product
  std::stop_token stop{};
};

/// Parts that are products of automata are made into automata first, which also counts as visits.
/// nullopt: it exceeds a limit, or was stopped. The time is that of the limits whatever the pattern, which may stand
/// for exponentially many states. Precondition: the pattern is at most kDeepestPattern deep.
std::optional<Nfa> build_nfa(const Pattern& pattern, const NfaLimits& limits);

}  // namespace dllm::constrain
