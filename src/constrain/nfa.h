#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "constrain/dfa.h"
#include "constrain/pattern.h"
#include "dllm/error.h"

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
  std::string largest{};    ///< the place of the pattern that has the most states
};

/// The automata of parts that are products, by part: such a part may be within several others. The patterns must
/// outlive them.
struct Products {
  std::unordered_map<const Pattern*, Dfa> made{};
  std::int64_t visits = 0;  ///< that the last automaton took, finished or not
};

struct NfaLimits {
  std::int32_t states = 0;
  std::int64_t visits = 0;               ///< of parts of the pattern
  bool counts = true;                    ///< false: counted parts are repeated, a few times
  std::int32_t product_states = 10'000;  ///< of an automaton that is a factor of another, or their product
  std::stop_token stop{};
};

/// Parts that are products of automata are made into automata first, which also counts as visits. The time is that of
/// the limits whatever the pattern, which may stand for exponentially many states. Errors: kUsage, it exceeds a limit,
/// or was stopped; `where` is the place that has the most states, or whose product is too large. Precondition: the
/// pattern is at most kDeepestPattern deep.
Expected<Nfa> build_nfa(const Pattern& pattern, const NfaLimits& limits, Products& products);

}  // namespace dllm::constrain
