#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "constrain/dfa.h"
#include "constrain/schema_node.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// Which of the values that "enum" or "const" lists fit the schema's other keywords: a text's length and patterns, a
/// number's bounds and whether it is a multiple. A format is taken to be what the list says.
class ListedValues {
 public:
  explicit ListedValues(const SchemaNode& node) : node_(node) {}

  /// Errors: kUsage, a keyword that is not supported beside a list, or is wrong.
  Expected<bool> admit(const nlohmann::ordered_json& value);

 private:
  struct Matcher {
    Dfa dfa;
    bool negated;
  };

  Expected<bool> admit_text(const std::string& text);
  Expected<bool> admit_number(const nlohmann::ordered_json& value) const;
  Expected<void> read_pattern();

  SchemaNode node_;
  std::optional<std::vector<Matcher>> patterns_{};  ///< once the first text is seen
};

}  // namespace dllm::constrain
