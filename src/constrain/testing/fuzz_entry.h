#pragma once

#include <algorithm>
#include <string_view>

#include "constrain/dfa.h"
#include "constrain/json_schema.h"
#include "constrain/regex.h"

namespace dllm::constrain {

/// The body of fuzz/fuzz_constraint.cpp, which a test replays over its corpus: any text is a schema, an expression, or
/// an error that says what is wrong, and its automaton can be run.
inline void fuzz_constraint(std::string_view text) {
  const DfaLimits small{.states = 500, .work = 100'000};
  for (const auto& pattern : {parse_schema(text), parse_regex(text), parse_regex(text, RegexScope::kSearch)}) {
    if (!pattern) {
      if (pattern.error().what.empty() || pattern.error().where.empty()) __builtin_trap();
      continue;
    }
    const auto dfa = compile(**pattern, small);
    if (!dfa && dfa.error().what.empty()) __builtin_trap();
    if (dfa && dfa->matches(text) && std::ranges::count(dfa->accepting, 1) == 0) __builtin_trap();
  }
}

}  // namespace dllm::constrain
