#pragma once

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

/// Removes the first `shots` items and puts them, with their solutions, before the others' prompts: the same examples
/// for every item, none of them scored. Errors: kUsage if no item would be left.
Expected<void> use_shots(EvalSet& set, std::int32_t shots);

}  // namespace dllm
