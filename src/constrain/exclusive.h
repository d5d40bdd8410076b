#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <unordered_map>
#include <vector>

namespace dllm::constrain {

struct SchemaFacts;

/// Which schemas exclude each other ("oneOf"). The schemas must have been read without errors.
class Exclusion {
 public:
  explicit Exclusion(const nlohmann::ordered_json& root);
  ~Exclusion();
  Exclusion(const Exclusion&) = delete;
  Exclusion& operator=(const Exclusion&) = delete;

  /// Whether no value fits both, as far as their types, constants and required properties with constants tell. False:
  /// one may, or it takes too long to tell: properties that refer to each other make exponentially many pairs, and
  /// every pair of long lists is compared.
  bool holds(const nlohmann::ordered_json& first, const nlohmann::ordered_json& second);

 private:
  /// Of the schema, or of the one to which it refers.
  const SchemaFacts& facts(const nlohmann::ordered_json& schema);
  bool disjoint_values(const SchemaFacts& a, const SchemaFacts& b);
  bool excluded_by_property(const SchemaFacts& a, const SchemaFacts& b);

  const nlohmann::ordered_json& root_;
  std::unordered_map<const nlohmann::ordered_json*, std::unique_ptr<const SchemaFacts>> facts_;
  std::int64_t work_ = 0;
  int depth_ = 0;
};

/// The different values that fit a schema, if it lists them (enum, const, booleans, null,
/// integers between bounds).
std::optional<std::vector<nlohmann::ordered_json>> few_values(const nlohmann::ordered_json& schema,
                                                              const nlohmann::ordered_json& root);
/// Whether only strings fit a schema, as far as its types and constants tell.
bool strings_only(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

}  // namespace dllm::constrain
