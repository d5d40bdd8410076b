#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "constrain/pattern.h"
#include "constrain/schema_node.h"
#include "dllm/error.h"

namespace dllm::constrain {

/// Makes the pattern of a schema. What references name is read once per level of recursion, and shared; keywords beside
/// alternatives are read with each of them, within limits. What the pattern stands for may be exponentially larger;
/// compile() has limits for that.
class SchemaReader {
 public:
  /// `path`: of the schema, for the names of its parts. The paths of nodes begin with "$" all the same.
  SchemaReader(const nlohmann::ordered_json& root, std::string path);
  ~SchemaReader();
  SchemaReader(const SchemaReader&) = delete;
  SchemaReader& operator=(const SchemaReader&) = delete;

  Expected<PatternPtr> read(const SchemaNode& node);

 private:
  using Json = nlohmann::ordered_json;

  struct Bounds {
    std::int32_t least = 0, most = Pattern::kUnbounded;
    bool admit(std::int64_t count) const { return count >= least && (most == Pattern::kUnbounded || count <= most); }
  };

  struct Member {
    PatternPtr text;
    bool required;
  };

  /// The elements of an array: these items, then any number of others.
  struct ArrayItems {
    std::vector<PatternPtr> first{};
    PatternPtr others{};            ///< null: none
    bool others_if_needed = false;  ///< others are written only if the bounds ask for them
  };

  // json_schema.cpp
  Expected<PatternPtr> any_of(const SchemaNode& node);
  PatternPtr open_value() const;
  Expected<PatternPtr> reference(const SchemaNode& node);
  Expected<PatternPtr> all_of(const SchemaNode& node);
  Expected<PatternPtr> constant(const SchemaNode& node);
  Expected<PatternPtr> enumeration(const SchemaNode& node);
  Expected<PatternPtr> branches(const SchemaNode& node, const char* key);
  Expected<PatternPtr> only_one(const SchemaNode& list, std::size_t one, const std::vector<std::size_t>& others,
                                const Json& rest);
  Expected<PatternPtr> typed(const SchemaNode& node);
  Expected<PatternPtr> of_type(const SchemaNode& node, const std::string& type);
  static Expected<void> only(const SchemaNode& node, std::initializer_list<std::string_view> read);
  /// Of a flattened schema: those of "not".
  static std::vector<Json> excluded_values(const SchemaNode& node);
  static Expected<Bounds> bounds(const SchemaNode& node, const char* least, const char* most);

  // schema_scalars.cpp
  static Expected<PatternPtr> string(const SchemaNode& node);
  static Expected<PatternPtr> string_content(const SchemaNode& node);
  static Expected<PatternPtr> integer(const SchemaNode& node);
  static Expected<PatternPtr> number(const SchemaNode& node);
  static Expected<PatternPtr> numbers_between(const SchemaNode& node);

  // schema_containers.cpp
  Expected<PatternPtr> array(const SchemaNode& node);
  Expected<ArrayItems> array_items(const SchemaNode& node);
  Expected<PatternPtr> unique_items(const SchemaNode& node, const Bounds& count);
  static PatternPtr array_of(const ArrayItems& items, bool others, const Bounds& count);
  Expected<PatternPtr> items_with(const SchemaNode& node, const ArrayItems& items, bool others);
  Expected<PatternPtr> object(const SchemaNode& node);
  Expected<std::vector<std::string>> required(const SchemaNode& node) const;
  Expected<std::vector<Member>> members(const SchemaNode& node);
  Expected<PatternPtr> map(const SchemaNode& node);
  Expected<PatternPtr> map_key(const SchemaNode& node);
  static PatternPtr in_order(const std::vector<Member>& members);

  const Json& root_;
  const std::string path_;
  std::map<std::pair<std::string, int>, PatternPtr> references_;  ///< by name and level of recursion
  std::set<std::string> open_;                                    ///< references that are being read
  int level_ = 0;                                                 ///< of recursion
  std::deque<Json> made_;                                         ///< schemas that stand for several
  std::int64_t merge_budget_;
  std::int64_t pattern_work_ = 3'000'000;  ///< of automata that only tell which values fit (DfaLimits::work)
  int read_ = 0;
  int depth_ = 0;
};

}  // namespace dllm::constrain
