#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "constrain/best_path.h"
#include "constrain/token_automaton.h"

namespace dllm::constrain {

/// The count after a slot between two states. `token`: kNone: the one that counts least between them. kTooMany: the
/// count exceeds its bound.
std::int32_t count_after_slot(const TokenAutomaton& automaton, std::int32_t from, std::int32_t to, TokenId token,
                              std::int32_t count);

/// Whether no count exceeds its bound on a way through an automaton that counts. `states`: before each slot, and after
/// the last; `tokens`: of the slots that have a row and no token. At slots without both, the token that counts least
/// between their states is taken.
bool counts_fit(const TokenAutomaton& automaton, std::span<const Slot> slots, std::span<const std::int32_t> states,
                std::span<const TokenId> tokens);

/// As PathFinder::best(), on ways that keep to the bounds. Of the ways to a state it keeps those that are not both
/// worse and longer than another, a few dozen at most, the shortest always: more would only matter for the last letters
/// of a text at its bound. `can_end`: whether a state accepts after the slots. nullopt: there is no such way.
std::optional<std::vector<TokenId>> best_counted(const TokenAutomaton& automaton, std::span<const Slot> slots,
                                                 const ClassWeights& weights,
                                                 const std::function<bool(std::int32_t)>& can_end);

}  // namespace dllm::constrain
