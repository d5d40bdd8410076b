#pragma once

#include <array>
#include <cstdint>
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

  std::int32_t step(std::int32_t state, std::uint8_t byte) const {
    return next[static_cast<std::size_t>(state * classes + byte_class[byte])];
  }
  bool matches(std::string_view text) const;
};

/// What an automaton may grow to: compiling then takes less than about a second.
struct DfaLimits {
  std::int32_t states = 10'000;
  std::int64_t work = 20'000'000;  ///< states of the nondeterministic automaton that are visited
};

/// Errors: kUsage (it matches nothing; larger than the limits).
Expected<Dfa> compile(const Pattern& pattern, const DfaLimits& limits = {});

}  // namespace dllm::constrain
