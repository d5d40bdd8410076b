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
  /// The least integer that `minimum` and `exclusiveMinimum` allow (the greatest one of `maximum` and
  /// `exclusiveMaximum`); bounds are numbers, and those beyond 64 bits are cut to them; absent: nullopt. Errors: no
  /// number, no integer of 64 bits is within the bound.
  Expected<std::optional<std::int64_t>> least_integer() const;
  Expected<std::optional<std::int64_t>> greatest_integer() const;
  /// The names of `type`, or what the other keywords imply. Errors: an unknown name, none.
  Expected<std::vector<std::string>> types() const;
  /// Whether the value has one of the types of `type`, or there is none. Errors: an unknown name in `type`.
  Expected<bool> allows_type_of(const nlohmann::ordered_json& value) const;
  /// The schema that `$ref` names. Errors: not of this document, or not there.
  Expected<SchemaNode> resolve(const nlohmann::ordered_json& root) const;
};

}  // namespace dllm::constrain
