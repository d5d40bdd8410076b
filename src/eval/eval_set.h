#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "eval/task_kind.h"

namespace dllm {

/// Items of one kind.
struct EvalSet {
  const TaskKind* kind = nullptr;
  std::vector<EvalItem> items;
};

/// Items from JSON lines (empty lines are skipped) or from one JSON array of objects. `format` names the kind; empty:
/// detected from the first item's fields. Errors: kUsage (unknown format); kInvalidFile, with `name` and the line or
/// item: not JSON, not an object, a missing field, a field of another type or unknown to the kind; no items.
Expected<EvalSet> parse_eval_set(std::string_view text, const std::string& name, std::string_view format = {});
Expected<EvalSet> read_eval_set(const std::string& path, std::string_view format = {});

/// Which items of a set are used.
struct ItemChoice {
  std::string task{};       ///< only those of this task; empty: all
  std::int32_t shots = 0;   ///< see use_shots(), after `task`
  std::int32_t offset = 0;  ///< leaves the first ones out, after `shots`
  std::int32_t limit = 0;   ///< so many at most; 0: all
};
/// Errors: kUsage, with the flag (no such task, fewer items).
Expected<void> choose_items(EvalSet& set, const ItemChoice& choice);

/// Removes the first `shots` items and puts them, with their solutions, before the others' prompts: the same examples
/// for every item, none of them scored. Errors: kUsage if no item would be left.
Expected<void> use_shots(EvalSet& set, std::int32_t shots);

}  // namespace dllm
