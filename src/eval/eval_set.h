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

/// Items of JSON lines (empty lines are skipped) or of one JSON array of objects. `format` names the kind; empty: the
/// kind whose fields the first item has. Errors: kUsage (unknown format); kInvalidFile, naming `name` and the line or
/// item: not JSON, not an object, a field missing, of another type or unknown to the kind; no item at all.
Expected<EvalSet> parse_eval_set(std::string_view text, const std::string& name, std::string_view format = {});
Expected<EvalSet> read_eval_set(const std::string& path, std::string_view format = {});

/// Takes the first `shots` items out and puts them, with their solutions, in front of the others' prompts: the same
/// examples for every item, none of them asked. Errors: kUsage if none would be left.
Expected<void> use_shots(EvalSet& set, std::int32_t shots);

}  // namespace dllm
