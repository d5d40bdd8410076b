#include "format/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/tensor_info.h"

namespace dllm {
namespace {

constexpr int kMaxDepth = 16;

/// Deepest nesting of brackets outside of strings; the parser rejects what is not JSON.
int nesting_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '{' || c == '['))
      deepest = std::max(deepest, ++depth);
    else if (!in_string && (c == '}' || c == ']'))
      --depth;
  }
  return deepest;
}

}  // namespace

Expected<nlohmann::json> parse_strict_json(std::span<const std::byte> text, std::string_view file,
                                           std::size_t first_byte) {
  using Json = nlohmann::json;
  const auto invalid = [&](std::string what) {
    return Error{ErrorCode::kInvalidFile, std::move(what), fmt::format("{}, offset {:#x}", file, first_byte),
                 "the file is damaged: fetch it again"};
  };
  const std::string_view characters(reinterpret_cast<const char*>(text.data()), text.size());
  if (nesting_depth(characters) > kMaxDepth)
    return invalid(fmt::format("the JSON is nested more than {} deep", kMaxDepth));

  std::vector<std::set<std::string>> open;  // keys seen in each enclosing object
  std::string twin;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open.back().insert(key).second && twin.empty()) twin = quote_name(key);
    }
    return true;
  };
  Json json = Json::parse(characters.begin(), characters.end(), watch, /*allow_exceptions=*/false);
  if (json.is_discarded()) return invalid("not valid JSON");
  if (!twin.empty()) return invalid(fmt::format("the key {} occurs twice", twin));
  return json;
}

}  // namespace dllm
