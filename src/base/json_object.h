#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/strict_object.h"
#include "dllm/error.h"

namespace dllm {

/// A JSON value as StrictObject has it. Json: nlohmann::json or nlohmann::ordered_json.
template <class Json>
StrictObject::Value json_value(const Json& value);
extern template StrictObject::Value json_value(const nlohmann::json& value);
extern template StrictObject::Value json_value(const nlohmann::ordered_json& value);

/// An object of a JSON file. `place`: where it is ("file, answers[2]"); an error at a key is "file, answers[2], nfe".
/// Errors are kInvalidFile, with `hint` where there is no better one. Borrows the JSON.
class JsonObject : public StrictObject {
 public:
  /// Errors: not an object.
  static Expected<JsonObject> of(const nlohmann::json& json, std::string place, std::string hint = "");

  const std::string& place() const { return place_; }
  Error error(std::string_view key, std::string what, std::string hint = "") const override;

  /// Reads a key with any value. Errors: missing.
  Expected<const nlohmann::json*> any(std::string_view key);
  /// Errors: missing; not a list.
  Expected<const nlohmann::json*> list(std::string_view key);

 protected:
  Value value(std::string_view key) const override;
  bool visit_list(std::string_view key, const std::function<bool(Value)>& visit) const override;
  std::vector<std::string> keys() const override;

 private:
  JsonObject(const nlohmann::json& json, std::string place, std::string hint);
  const nlohmann::json* find(std::string_view key) const;

  const nlohmann::json* json_;
  std::string place_, hint_;
};

}  // namespace dllm
