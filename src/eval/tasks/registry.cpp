#include "eval/tasks/kinds.h"

namespace dllm {

const std::vector<const TaskKind*>& task_kinds() {
  static const std::vector<const TaskKind*> kinds = {
      &exact_kind(),    &number_kind(),    &choice_kind(),   &gsm8k_kind(),     &svamp_kind(),
      &adapters_kind(), &hellaswag_kind(), &cruxeval_kind(), &humaneval_kind(),
  };
  return kinds;
}

std::vector<std::string> task_kind_names() {
  std::vector<std::string> names;
  for (const TaskKind* kind : task_kinds()) names.emplace_back(kind->name);
  return names;
}

const TaskKind* find_task_kind(std::string_view name) {
  for (const TaskKind* kind : task_kinds())
    if (kind->name == name) return kind;
  return nullptr;
}

}  // namespace dllm
