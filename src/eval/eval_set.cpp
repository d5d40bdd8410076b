#include "eval/eval_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/input_file.h"
#include "base/json_object.h"
#include "base/nearest.h"
#include "base/try.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

struct RawItem {
  Json object;
  std::int64_t number = 0;
  std::string where;
};

Expected<RawItem> raw_item(Json json, std::int64_t number, std::string where) {
  if (!json.is_object())
    return Error{ErrorCode::kInvalidFile, fmt::format("a {}, not an object", json.type_name()), where, ""};
  return RawItem{std::move(json), number, std::move(where)};
}

Expected<std::vector<RawItem>> array_items(std::string_view text, const std::string& name) {
  Json array = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  // If a line contains an array, it is not an array of items, and the error should name the line.
  if (array.is_discarded() || !array.is_array()) return Error{ErrorCode::kInvalidFile, "not a JSON array", name, ""};
  std::vector<RawItem> items;
  for (Json& json : array) {
    const auto number = static_cast<std::int64_t>(items.size()) + 1;
    DLLM_TRY(RawItem item, raw_item(std::move(json), number, fmt::format("{}, item {}", name, number)));
    items.push_back(std::move(item));
  }
  return items;
}

Expected<std::vector<RawItem>> line_items(std::string_view text, const std::string& name) {
  std::vector<RawItem> items;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::string where = fmt::format("{}, line {}", name, number);
    Json json = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return Error{ErrorCode::kInvalidFile, "not JSON", where, "one object per line"};
    DLLM_TRY(RawItem item, raw_item(std::move(json), number, std::move(where)));
    items.push_back(std::move(item));
  }
  return items;
}

std::vector<std::string> field_names(const TaskKind& kind) {
  std::vector<std::string> names;
  for (const Field& field : kind.fields)
    names.push_back(field.required ? std::string(field.name) : fmt::format("[{}]", field.name));
  return names;
}

bool has_required(const TaskKind& kind, const Json& object) {
  return std::all_of(kind.fields.begin(), kind.fields.end(),
                     [&](const Field& f) { return !f.required || object.contains(f.name); });
}

std::size_t required_count(const TaskKind& kind) {
  return static_cast<std::size_t>(
      std::count_if(kind.fields.begin(), kind.fields.end(), [](const Field& f) { return f.required; }));
}

/// The kind with the most required fields that the object has. Extra fields are reported later, when the item is read,
/// by an error that can name them.
Expected<const TaskKind*> detect(const RawItem& item) {
  const TaskKind* best = nullptr;
  for (const TaskKind* kind : task_kinds())
    if (kind->detectable && has_required(*kind, item.object) &&
        (best == nullptr || required_count(*kind) > required_count(*best)))
      best = kind;
  if (best != nullptr) return best;
  std::vector<std::string> names, known;
  for (const auto& [name, value] : item.object.items()) names.push_back(name);
  for (const TaskKind* kind : task_kinds())
    known.push_back(fmt::format("{} ({})", kind->name, fmt::join(field_names(*kind), ", ")));
  return Error{ErrorCode::kInvalidFile, fmt::format("no known kind of item has the fields {}", fmt::join(names, ", ")),
               item.where, fmt::format("known: {}", fmt::join(known, "; "))};
}

Expected<EvalItem> read_item(const TaskKind& kind, const RawItem& raw) {
  DLLM_TRY(JsonObject fields, JsonObject::of(raw.object, raw.where));
  for (const Field& field : kind.fields) fields.allow(field.name);
  if (const auto known = fields.finish(); !known) {
    Error error = known.error();
    error.what += fmt::format(" of {} items", kind.name);
    return error;
  }
  DLLM_TRY(EvalItem item, kind.read(fields));
  item.line = raw.number;
  if (item.task == "default") item.task = kind.detectable ? std::string(kind.name) : "default";
  return item;
}

}  // namespace

Expected<EvalSet> parse_eval_set(std::string_view text, const std::string& name, std::string_view format) {
  EvalSet set;
  if (!format.empty()) {
    set.kind = find_task_kind(format);
    if (set.kind == nullptr)
      return Error{ErrorCode::kUsage, fmt::format("unknown kind of items '{}'", format), "--format",
                   fmt::format("known: {}", fmt::join(task_kind_names(), ", "))};
  }
  const auto first = text.find_first_not_of(" \t\r\n");
  std::vector<RawItem> raw;
  auto array = first != std::string_view::npos && text[first] == '[' ? array_items(text, name)
                                                                     : Expected<std::vector<RawItem>>(Error{});
  if (array) {
    raw = *std::move(array);
  } else {
    DLLM_TRY(raw, line_items(text, name));
  }
  if (raw.empty()) return Error{ErrorCode::kInvalidFile, "there are no items", name, ""};
  if (set.kind == nullptr) {
    DLLM_TRY(set.kind, detect(raw.front()));
  }
  for (const RawItem& one : raw) {
    DLLM_TRY(EvalItem item, read_item(*set.kind, one));
    set.items.push_back(std::move(item));
  }
  return set;
}

Expected<EvalSet> read_eval_set(const std::string& path, std::string_view format) {
  DLLM_TRY(const std::string text, read_input(path));
  return parse_eval_set(text, path, format);
}

Expected<void> choose_items(EvalSet& set, const ItemChoice& choice) {
  if (!choice.task.empty()) {
    std::set<std::string> names;
    for (const EvalItem& item : set.items) names.insert(item.task);
    if (!names.contains(choice.task))
      return Error{ErrorCode::kUsage, fmt::format("the file has no task '{}'", choice.task), "--task",
                   choice_hint(choice.task, {names.begin(), names.end()})};
    std::erase_if(set.items, [&](const EvalItem& item) { return item.task != choice.task; });
  }
  DLLM_CHECK_OK(use_shots(set, choice.shots));
  if (choice.offset < 0)
    return Error{ErrorCode::kUsage, fmt::format("{} items cannot be left out", choice.offset), "--offset",
                 "give at least 0"};
  if (static_cast<std::size_t>(choice.offset) >= set.items.size() && choice.offset > 0)
    return Error{ErrorCode::kUsage, fmt::format("there are {} items", set.items.size()), "--offset",
                 "give a smaller number"};
  set.items.erase(set.items.begin(), set.items.begin() + choice.offset);
  if (choice.limit > 0) set.items.resize(std::min(set.items.size(), static_cast<std::size_t>(choice.limit)));
  return {};
}

Expected<void> use_shots(EvalSet& set, std::int32_t shots) {
  if (shots <= 0) return {};
  const auto count = static_cast<std::size_t>(shots);
  if (count >= set.items.size())
    return Error{ErrorCode::kUsage, fmt::format("{} examples leave none of {} items", shots, set.items.size()),
                 "--shots", ""};
  std::string examples;
  for (std::size_t i = 0; i < count; ++i) {
    const EvalItem& item = set.items[i];
    const bool spaced = !item.prompt.empty() && (item.prompt.back() == ' ' || item.prompt.back() == '\n');
    examples += item.prompt + (spaced ? "" : " ") + (item.solution.empty() ? item.answer : item.solution) + "\n\n";
  }
  set.items.erase(set.items.begin(), set.items.begin() + static_cast<std::ptrdiff_t>(count));
  for (EvalItem& item : set.items) item.prompt = examples + item.prompt;
  return {};
}

}  // namespace dllm
