#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm::constrain {

/// A place of a JSON Schema.
struct SchemaNode {
  const nlohmann::ordered_json& json;
  std::string path;  ///< "$.properties.age"

  /// A member. Precondition: the object has it.
  SchemaNode at(const std::string& key) const;
  Error bad(std::string what, std::string hint = "") const;

  /// The integer of a member; absent: nullopt.
  Expected<std::optional<std::int64_t>> integer(const char* key, std::int64_t minimum, std::int64_t maximum) const;
  /// The names of `type`, or else the types to which the other keywords apply; empty: any. Errors: an unknown name.
  Expected<std::vector<std::string>> types() const;
  /// Whether `type` is absent or one of the value's types. Errors: as types().
  Expected<bool> type_admits(const nlohmann::ordered_json& value) const;
  /// The schema that `$ref` names. Errors: not of this document, or not there, or among too many.
  Expected<SchemaNode> resolve(const nlohmann::ordered_json& root) const;
};

}  // namespace dllm::constrain
