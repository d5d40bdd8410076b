#pragma once

#include <array>
#include <cstdint>
#include <stop_token>
#include <string_view>
#include <vector>

#include "constrain/pattern.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// A deterministic automaton over bytes with as few states as possible. Every state can be reached, and from every
/// state some text is accepted.
struct Dfa {
  static constexpr std::int32_t kDead = -1;

  std::int32_t states = 0;  ///< 0 is the first one
  std::int32_t classes = 0;
  std::array<std::uint8_t, 256> byte_class{};  ///< bytes that no state distinguishes share a class
  std::vector<std::int32_t> next;              ///< [state][class]; kDead: nothing that begins so is accepted
  std::vector<std::uint8_t> accepting;         ///< [state]
  // Of counted(): what has to be counted on the way. A text is accepted if its way is, and no count exceeds its bound.
  std::vector<std::int32_t> most{};     ///< the bounds
  std::vector<std::int32_t> counter{};  ///< [state]: 0, or 1 + the index of a bound, if something is counted there
  std::vector<std::uint8_t> between{};  ///< [state]: the next byte that stays with the counter begins one more

  std::int32_t step(std::int32_t state, std::uint8_t byte) const {
    return next[static_cast<std::size_t>(state * classes + byte_class[byte])];
  }
  static constexpr std::int32_t kTooMany = -1;
  /// What is counted after a byte that leads from a state to another, if it was `count` before; kTooMany: more than the
  /// bound. In states without a counter it is 0.
  std::int32_t count_after(std::int32_t from, std::int32_t to, std::int32_t count) const;
  bool matches(std::string_view text) const;
};

/// What an automaton may grow to. The limits are counted while it grows, so that a short text that stands for an
/// enormous automaton is refused as soon as one of them is reached. They are counts and not a time: what one machine
/// accepts, all do. The defaults aim at 50 ms in all.
struct DfaLimits {
  std::int32_t states = 10'000;
  std::int64_t work = 3'000'000;   ///< parts of the pattern, and states of the nondeterministic automaton, visited
  std::int64_t cells = 1'000'000;  ///< of the table of transitions before it is minimized: states by classes of bytes
  std::stop_token stop{};          ///< ends the compilation with kCancelled
};

/// An automaton that is too large because of products, which lengths beside an expression are, accepts fewer texts
/// instead: what may be repeated a limited number of times within them is repeated less often. Errors: kUsage (it
/// matches nothing; larger than the limits, `where` is the place that has the most states; deeper than
/// kDeepestPattern), kCancelled.
Expected<Dfa> compile(const Pattern& pattern, const DfaLimits& limits = {});

struct Products;

/// As compile(), but nothing is counted, nothing is left out, and no states say that it matches nothing. `work`: what
/// may be visited, instead of the limits'; it is reduced by what was. `products`: of parts that are known; new ones are
/// added.
Expected<Dfa> language(const Pattern& pattern, const DfaLimits& limits, std::int64_t& work, Products& products);

}  // namespace dllm::constrain
