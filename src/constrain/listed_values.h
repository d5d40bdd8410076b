#pragma once

#include <cstdint>
#include <map>
#include <memory>
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
  /// `work`: what the automata of the patterns may take, as in language(); it is reduced, and must outlive this.
  ListedValues(const SchemaNode& node, std::int64_t& work);
  ListedValues(const ListedValues&) = delete;
  ListedValues& operator=(const ListedValues&) = delete;

  /// As SchemaNode::type_admits().
  Expected<bool> of_type(const nlohmann::ordered_json& value);
  /// Errors: kUsage, a keyword that is not supported beside a list, or is wrong.
  Expected<bool> admit(const nlohmann::ordered_json& value);

 private:
  struct Matcher {
    Dfa dfa;
    bool negated;
  };
  struct Texts {
    std::int64_t least = 0;
    std::optional<std::int64_t> most{};
    std::vector<Matcher> patterns{};
  };

  Expected<void> check(const std::string& kind);
  Expected<bool> admit_text(const std::string& text);
  Expected<bool> admit_number(const nlohmann::ordered_json& value) const;
  Expected<void> read_texts();
  Expected<void> read_pattern(std::vector<Matcher>& patterns);

  /// What restricts, without the lists, which are long: it is searched per value.
  std::shared_ptr<const nlohmann::ordered_json> keywords_;
  SchemaNode node_;
  std::int64_t& work_;
  std::map<std::string, bool> of_type_{};  ///< by kinds of values
  std::map<std::string, bool> checked_{};
  std::optional<Texts> texts_{};  ///< once the first text is seen
};

}  // namespace dllm::constrain
