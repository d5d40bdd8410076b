#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <vector>

#include "constrain/dfa.h"
#include "constrain/testing/random_match.h"
#include "constrain/testing/schema_dfa.h"
#include "constrain/testing/validate.h"

namespace dllm::constrain::test {

/// Random texts that a schema's automaton accepts are JSON, and valid.
inline void expect_walks_validate(const std::string& text, std::size_t walks, std::mt19937& rng) {
  const Dfa dfa = schema_dfa(text);
  const auto schema = nlohmann::ordered_json::parse(text);
  const std::vector<std::int32_t> far = distances(dfa);
  for (std::size_t i = 0; i < walks; ++i) {
    const std::string answer = random_match(dfa, far, rng);
    ASSERT_TRUE(dfa.matches(answer));
    const auto value = nlohmann::ordered_json::parse(answer, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(value.is_discarded()) << text << "\n" << answer;
    EXPECT_TRUE(validates(value, schema, schema)) << text << "\n" << answer;
  }
}

}  // namespace dllm::constrain::test
