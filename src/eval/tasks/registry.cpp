#include "eval/task_kind.h"

namespace dllm {

// The kinds of this build; detection prefers earlier ones. A new kind needs its file and a line here.
#define DLLM_TASK_KINDS(X) \
  X(exact_kind)            \
  X(number_kind)           \
  X(choice_kind)           \
  X(gsm8k_kind)            \
  X(svamp_kind)            \
  X(adapters_kind)         \
  X(hellaswag_kind)        \
  X(cruxeval_kind)         \
  X(humaneval_kind)

#define DLLM_DECLARE(name) const TaskKind& name();
DLLM_TASK_KINDS(DLLM_DECLARE)
#undef DLLM_DECLARE

const std::vector<const TaskKind*>& task_kinds() {
#define DLLM_ADDRESS(name) &name(),
  static const std::vector<const TaskKind*> kinds = {DLLM_TASK_KINDS(DLLM_ADDRESS)};
#undef DLLM_ADDRESS
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
