#include "eval/task_kind.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"

namespace dllm {

Error Fields::error(std::string what, std::string hint) const {
  return {ErrorCode::kInvalidFile, std::move(what), where_, std::move(hint)};
}

bool Fields::has(std::string_view key) const { return object_.contains(key); }

Expected<const nlohmann::json*> Fields::find(std::string_view key) const {
  const auto found = object_.find(key);
  if (found == object_.end()) return error(fmt::format("'{}' is missing", key));
  return &*found;
}

Expected<std::string> Fields::text(std::string_view key) const {
  DLLM_TRY(const nlohmann::json* const value, find(key));
  if (!value->is_string()) return error(fmt::format("'{}' is a {}, not a string", key, value->type_name()));
  return value->get<std::string>();
}

Expected<std::vector<std::string>> Fields::texts(std::string_view key) const {
  DLLM_TRY(const nlohmann::json* const value, find(key));
  std::vector<std::string> result;
  if (value->is_array())
    for (const nlohmann::json& element : *value)
      if (element.is_string()) result.push_back(element.get<std::string>());
  if (!value->is_array() || result.size() != value->size() || result.empty())
    return error(fmt::format("'{}' is not a list of strings", key));
  return result;
}

Expected<std::int64_t> Fields::integer(std::string_view key) const {
  DLLM_TRY(const nlohmann::json* const value, find(key));
  if (!value->is_number_integer()) return error(fmt::format("'{}' is not an integer", key));
  return value->get<std::int64_t>();
}

Expected<double> Fields::number(std::string_view key) const {
  DLLM_TRY(const nlohmann::json* const value, find(key));
  if (!value->is_number()) return error(fmt::format("'{}' is a {}, not a number", key, value->type_name()));
  return value->get<double>();
}

std::string_view scoring_name(Scoring scoring) {
  switch (scoring) {
    case Scoring::kGenerate:
      return "generate";
    case Scoring::kChoices:
      return "choices";
    case Scoring::kLikelihood:
      return "likelihood";
  }
  return "unknown";
}

}  // namespace dllm
