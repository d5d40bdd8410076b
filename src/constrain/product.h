#pragma once

#include <cstdint>

#include "constrain/dfa.h"

namespace dllm::constrain {

enum class Product : std::uint8_t {
  kBoth,    ///< the texts that both automata accept
  kExcept,  ///< those of the first that the second does not accept
};

/// An automaton with states for pairs of states of two automata that count nothing, not minimized. No states: the first
/// one has none. Errors: kUsage (more than `most_states`, or more `work`, which is reduced by what it takes).
Expected<Dfa> product(const Dfa& first, const Dfa& second, Product kind, std::int32_t most_states, std::int64_t& work);

}  // namespace dllm::constrain
