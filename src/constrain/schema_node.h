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
  /// The names of `type`, or what the other keywords imply. Errors: an unknown name, none.
  Expected<std::vector<std::string>> types() const;
  /// An error if `type` is given and the value has another one. `place`: of the value, for the message.
  Expected<void> check_type(const nlohmann::ordered_json& value, std::string_view place) const;
  /// The schema that `$ref` names. Errors: not of this document, or not there.
  Expected<SchemaNode> resolve(const nlohmann::ordered_json& root) const;
};

}  // namespace dllm::constrain
