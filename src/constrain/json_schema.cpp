#include "constrain/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "base/try.h"
#include "constrain/exclusive.h"
#include "constrain/json_number.h"
#include "constrain/json_text.h"
#include "constrain/listed_values.h"
#include "constrain/schema_anchors.h"
#include "constrain/schema_keywords.h"
#include "constrain/schema_merge.h"
#include "constrain/schema_negation.h"
#include "constrain/schema_reader.h"
#include "constrain/value_set.h"

namespace dllm::constrain {
namespace {

constexpr std::int64_t kMostCount = 100'000;
constexpr std::size_t kMostBranches = 256;
constexpr int kMostNesting = 64;
/// Schemas that are read. A schema beside alternatives counts once for each alternative. With so many the automaton is
/// nearly always too large.
constexpr int kMostRead = 4000;
constexpr std::int64_t kMostMerged = 150'000;  ///< JSON values of all schemas that are merged

/// What a schema may take to read: it is kept with the requests that ask for it, and in a cache.
constexpr std::size_t kMostSchemaBytes = std::size_t{256} << 10U;
/// A request may have 64 levels, and a schema is at least four below its top: what a file may hold, a request may.
constexpr int kMostSchemaLevels = 60;

std::vector<std::string> all_types() { return {schema_types().begin(), schema_types().end()}; }

/// Each pattern keeps its place, and a name in it may be as long as the schema.
std::string shortened(std::string place) {
  constexpr std::size_t kLongestPlace = 200;
  if (place.size() <= kLongestPlace) return place;
  std::size_t end = kLongestPlace;
  while (end > 0 && (static_cast<unsigned char>(place[end]) & 0xC0U) == 0x80U) --end;
  return place.substr(0, end) + "…";
}

Error overlap(const SchemaNode& list, std::size_t a, std::size_t b) {
  return list.bad(fmt::format("a value may fit schemas {} and {}, and must fit one", std::min(a, b), std::max(a, b)),
                  "give anyOf, or different types, or a required property with different constants");
}

}  // namespace

SchemaReader::SchemaReader(const nlohmann::ordered_json& root, std::string path)
    : root_(root), path_(std::move(path)), merge_budget_(kMostMerged) {}
SchemaReader::~SchemaReader() = default;

Expected<PatternPtr> SchemaReader::read(const SchemaNode& node) {
  if (++depth_ > kMostNesting) return node.bad(fmt::format("more than {} levels", kMostNesting));
  if (++read_ > kMostRead) return node.bad(fmt::format("more than {} schemas", kMostRead));
  auto result = any_of(node);
  --depth_;
  if (!result) return result;
  if ((*result)->depth > kDeepestPattern) return node.bad("too many schemas within each other");
  return at_place(*result, shortened(path_ + node.path.substr(1)));
}

Expected<PatternPtr> SchemaReader::any_of(const SchemaNode& node) {
  if (node.json == Json(true)) return open_value();
  if (node.json == Json(false)) return either({});
  if (!node.json.is_object()) return node.bad("a schema is an object, true or false", "write {\"type\": ...}");
  if (node.json.contains("$ref") && !restricts_beside(node.json, "$ref")) return reference(node);
  if (needs_flattening(node.json)) return all_of(node);
  if (node.json.contains("const")) return constant(node);
  if (node.json.contains("enum")) return enumeration(node);
  for (const char* key : {"oneOf", "anyOf"})
    if (node.json.contains(key)) return branches(node, key);
  return typed(node);
}

PatternPtr SchemaReader::open_value() const { return json_any(depth_ > 1 ? kOpenLevelsWithin : kOpenLevels); }

Expected<void> SchemaReader::only(const SchemaNode& node, std::initializer_list<std::string_view> read) {
  const std::vector<std::string_view> known(read);
  return check_keywords(node, known, all_types());
}

/// A reference that is read within itself is one level of recursion deeper. After the last level nothing fits, so that
/// what refers to it optionally goes on without.
Expected<PatternPtr> SchemaReader::reference(const SchemaNode& node) {
  DLLM_CHECK_OK(only(node, {"$ref"}));
  DLLM_TRY(const SchemaNode target, node.resolve(root_));
  const std::string name = node.json["$ref"].get<std::string>();
  const bool again = open_.contains(name);
  if (again && level_ == kOpenLevels) return either({});
  const auto key = std::pair(name, level_ + (again ? 1 : 0));
  if (const auto known = references_.find(key); known != references_.end()) return known->second;
  open_.insert(name);
  level_ += again ? 1 : 0;
  auto pattern = read(target);
  level_ -= again ? 1 : 0;
  if (!again) open_.erase(name);
  if (pattern) references_[key] = *pattern;
  return pattern;
}

Expected<PatternPtr> SchemaReader::constant(const SchemaNode& node) {
  const Json& value = node.json["const"];
  DLLM_TRY(const bool typed, node.type_admits(value));
  if (!typed) return node.at("const").bad("the value is not of the type that \"type\" names");
  if (node.json.contains("enum") && node.json["enum"].is_array() && !ValueSet(node.json["enum"]).contains(value))
    return either({});
  DLLM_TRY(const bool fits, ListedValues(node, pattern_work_).admit(value));
  return fits ? json_value(value) : either({});
}

/// Values that do not fit the other keywords are left out. It may be all of them, if schemas were merged.
Expected<PatternPtr> SchemaReader::enumeration(const SchemaNode& node) {
  const SchemaNode own = node.at("enum");
  if (!own.json.is_array() || own.json.empty()) return own.bad("it must be a list of values");
  ListedValues listed(node, pattern_work_);
  std::vector<PatternPtr> ways;
  bool typed = false;
  for (const Json& value : own.json) {
    DLLM_TRY(const bool of_type, listed.of_type(value));
    DLLM_TRY(const bool fits, listed.admit(value));
    typed = typed || of_type;
    if (fits) ways.push_back(json_value(value));
  }
  if (!typed) return own.bad("no value is of the type that \"type\" names");
  return either(std::move(ways));
}

Expected<PatternPtr> SchemaReader::all_of(const SchemaNode& node) {
  if (node.json.contains("allOf") && node.json["allOf"].is_array() && node.json["allOf"].size() > kMostBranches)
    return node.at("allOf").bad(fmt::format("more than {} schemas", kMostBranches));
  DLLM_TRY(Json all, flatten_schema(node, root_, merge_budget_));
  made_.push_back(std::move(all));
  return any_of({made_.back(), node.path});
}

/// Other keywords hold beside each of the schemas.
Expected<PatternPtr> SchemaReader::branches(const SchemaNode& node, const char* key) {
  const SchemaNode own = node.at(key);
  const Json& list = own.json;
  if (!list.is_array() || list.empty()) return own.bad("it must be a list of schemas");
  if (list.size() > kMostBranches) return own.bad(fmt::format("more than {} schemas", kMostBranches));
  const Json rest = keywords_beside(node.json, key);
  Exclusion exclusion(root_);
  std::vector<PatternPtr> ways;
  std::vector<std::vector<std::size_t>> overlaps(list.size());  // schemas that a value may fit too
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!rest.empty()) made_.push_back({{"allOf", Json::array({list[i], rest})}});
    DLLM_TRY(PatternPtr way, read({rest.empty() ? list[i] : made_.back(), fmt::format("{}[{}]", own.path, i)}));
    ways.push_back(std::move(way));
    for (std::size_t j = 0; j < i && key == std::string_view("oneOf"); ++j)
      if (!exclusion.holds(list[i], list[j])) overlaps[i].push_back(j), overlaps[j].push_back(i);
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (overlaps[i].empty()) continue;
    DLLM_TRY(ways[i], only_one(own, i, overlaps[i], rest));
  }
  const auto never = [&](std::size_t i) { return ways[i]->kind == Pattern::Kind::kEither && ways[i]->parts.empty(); };
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!overlaps[i].empty() && never(i) && std::ranges::all_of(overlaps[i], never))
      return overlap(own, overlaps[i].front(), i);
  return either(std::move(ways));
}

/// Values that fit a schema of "oneOf", the keywords beside the list, and none of these others.
Expected<PatternPtr> SchemaReader::only_one(const SchemaNode& list, std::size_t one,
                                            const std::vector<std::size_t>& others, const Json& rest) {
  const auto path = [&](std::size_t i) { return fmt::format("{}[{}]", list.path, i); };
  Json all = Json::array({list.json[one], rest});
  for (const std::size_t other : others) {
    auto none = negated_schema({list.json[other], path(other)}, root_, merge_budget_);
    if (!none) return overlap(list, one, other);
    all.push_back(*std::move(none));
  }
  made_.push_back({{"allOf", std::move(all)}});
  auto pattern = read({made_.back(), path(one)});
  return pattern ? pattern : overlap(list, one, others.front());
}

Expected<PatternPtr> SchemaReader::typed(const SchemaNode& node) {
  DLLM_TRY(std::vector<std::string> types, node.types());
  static constexpr std::string_view kRead[] = {"type",
                                               "not",
                                               "contains",
                                               "minContains",
                                               "maxContains",
                                               "minLength",
                                               "maxLength",
                                               "pattern",
                                               "format",
                                               "minimum",
                                               "maximum",
                                               "multipleOf",
                                               "items",
                                               "prefixItems",
                                               "uniqueItems",
                                               "minItems",
                                               "maxItems",
                                               "required",
                                               "exclusiveMinimum",
                                               "properties",
                                               "additionalItems",
                                               "propertyNames",
                                               "minProperties",
                                               "maxProperties",
                                               "exclusiveMaximum",
                                               "additionalProperties",
                                               "patternProperties"};
  DLLM_CHECK_OK(check_keywords(node, kRead, types.empty() ? all_types() : types));
  if (types.empty() && !node.json.contains("not")) return open_value();
  if (types.empty()) types = {"string", "number", "boolean", "null", "array", "object"};
  std::vector<PatternPtr> ways;
  for (const std::string& type : types) {
    DLLM_TRY(PatternPtr way, of_type(node, type));
    ways.push_back(std::move(way));
  }
  return either(std::move(ways));
}

Expected<PatternPtr> SchemaReader::of_type(const SchemaNode& node, const std::string& type) {
  if (type == "string") return string(node);
  if (type == "integer") return integer(node);
  if (type == "number") return number(node);
  const std::vector<Json> excluded = excluded_values(node);
  if (type == "boolean" || type == "null") {
    std::vector<PatternPtr> ways;
    for (const Json& value : type == "null" ? Json::array({nullptr}) : Json::array({true, false}))
      if (std::ranges::count(excluded, value) == 0) ways.push_back(json_value(value));
    return either(std::move(ways));
  }
  if (std::ranges::any_of(excluded, [&](const Json& value) { return value.type_name() == type; }))
    return node.at("not").bad(fmt::format("values of type {} cannot be excluded", type), "name scalars only");
  return type == "array" ? array(node) : object(node);
}

std::vector<nlohmann::ordered_json> SchemaReader::excluded_values(const SchemaNode& node) {
  if (!node.json.contains("not")) return {};
  const Json& list = node.json["not"]["enum"];
  return {list.begin(), list.end()};
}

/// An upper bound beyond the largest count stands for this: no answer reaches it.
Expected<SchemaReader::Bounds> SchemaReader::bounds(const SchemaNode& node, const char* least, const char* most) {
  DLLM_TRY(const auto from, node.integer(least, 0, kMostCount));
  DLLM_TRY(const auto to, node.integer(most, 0, std::int64_t{1} << 53U));
  if (from && to && *to < *from) return node.at(most).bad(fmt::format("it is less than {}", least));
  return Bounds{static_cast<std::int32_t>(from.value_or(0)),
                to ? static_cast<std::int32_t>(std::min(*to, kMostCount)) : Pattern::kUnbounded};
}

Expected<PatternPtr> schema_pattern(const nlohmann::ordered_json& schema, const std::string& path) {
  const auto at_path = [&](Error error) {
    error.where = path + error.where.substr(1);
    return error;
  };
  auto resolved = without_anchors(schema);
  if (!resolved) return at_path(std::move(resolved).error());
  const nlohmann::ordered_json& root = *resolved ? **resolved : schema;
  auto pattern = SchemaReader(root, path).read({root, "$"});
  if (!pattern) return at_path(std::move(pattern).error());
  return pattern;
}

Expected<PatternPtr> parse_schema(std::string_view text) {
  JsonRules rules{.code = ErrorCode::kUsage, .root = "$"};
  rules.bytes = kMostSchemaBytes;
  rules.depth = kMostSchemaLevels;
  DLLM_TRY(const nlohmann::ordered_json schema, read_json<nlohmann::ordered_json>(text, rules));
  return schema_pattern(schema);
}

}  // namespace dllm::constrain
