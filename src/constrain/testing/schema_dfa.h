#pragma once

#include <gtest/gtest.h>

#include <string>

#include "constrain/dfa.h"
#include "constrain/json_schema.h"

namespace dllm::constrain::test {

/// The automaton of a schema that is supported.
inline Dfa schema_dfa(const std::string& schema) {
  auto pattern = parse_schema(schema);
  EXPECT_TRUE(pattern.has_value()) << schema << ": " << (pattern ? "" : pattern.error().message());
  auto dfa = compile(**pattern);
  EXPECT_TRUE(dfa.has_value()) << schema << ": " << (dfa ? "" : dfa.error().message());
  return *std::move(dfa);
}

}  // namespace dllm::constrain::test
