#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace dllm::constrain {

/// Which schemas exclude each other ("oneOf"). The schemas must have been read without errors.
class Exclusion {
 public:
  explicit Exclusion(const nlohmann::ordered_json& root) : root_(root) {}

  /// Whether no value fits both, as far as their types, constants and required properties with constants tell. False:
  /// one may, or it takes too long to tell: properties that refer to each other make exponentially many pairs.
  bool holds(const nlohmann::ordered_json& first, const nlohmann::ordered_json& second);

 private:
  const nlohmann::ordered_json& root_;
  int pairs_ = 0;  ///< that were compared
  int depth_ = 0;
};

/// The different values that fit a schema, if it lists them (enum, const, booleans, null).
std::optional<std::vector<nlohmann::ordered_json>> few_values(const nlohmann::ordered_json& schema,
                                                              const nlohmann::ordered_json& root);
/// Whether only strings fit a schema, as far as its types and constants tell.
bool strings_only(const nlohmann::ordered_json& schema, const nlohmann::ordered_json& root);

}  // namespace dllm::constrain
