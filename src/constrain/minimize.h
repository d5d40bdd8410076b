#pragma once

#include "constrain/dfa.h"

namespace dllm::constrain {

/// The smallest automaton with the same language, by Hopcroft's algorithm; states are numbered in the order of a
/// breadth-first search. No states: the language is empty. Precondition: every state can be reached from state 0.
Dfa minimize(const Dfa& dfa);

}  // namespace dllm::constrain
