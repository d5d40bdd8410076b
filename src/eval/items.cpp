#include "eval/items.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/try.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

Expected<std::string> text_member(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is missing", key), where, ""};
  if (!found->is_string())
    return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is a {}, not a string", key, found->type_name()), where,
                 ""};
  return found->get<std::string>();
}

Expected<EvalItem> parse_item(std::string_view line, std::int64_t number, const std::string& where) {
  const Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Error{ErrorCode::kInvalidFile, "not JSON", where, "one object per line"};
  if (!json.is_object())
    return Error{ErrorCode::kInvalidFile, fmt::format("a {}, not an object", json.type_name()), where, ""};
  EvalItem item;
  item.line = number;
  DLLM_TRY(item.prompt, text_member(json, "prompt", where));
  DLLM_TRY(item.answer, text_member(json, "answer", where));
  if (json.contains("task")) {
    DLLM_TRY(item.task, text_member(json, "task", where));
  }
  return item;
}

}  // namespace

Expected<std::vector<EvalItem>> parse_items(std::string_view text, const std::string& name) {
  std::vector<EvalItem> items;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    DLLM_TRY(EvalItem item, parse_item(line, number, fmt::format("{}, line {}", name, number)));
    items.push_back(std::move(item));
  }
  if (items.empty()) return Error{ErrorCode::kInvalidFile, "there are no items", name, ""};
  return items;
}

Expected<std::vector<EvalItem>> read_items(const std::string& path) {
  std::error_code ignored;
  // A stream opens a directory without complaint, and throws when it is read.
  if (std::filesystem::is_directory(path, ignored)) return Error{ErrorCode::kIo, "is a directory", path, ""};
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kIo, errno != 0 ? std::strerror(errno) : "cannot be read", path, ""};
  return parse_items(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

}  // namespace dllm
