#pragma once

#include "eval/task_kind.h"

namespace dllm {

// One function per file of this folder; registry.cpp lists them.
const TaskKind& exact_kind();
const TaskKind& number_kind();
const TaskKind& choice_kind();
const TaskKind& gsm8k_kind();
const TaskKind& svamp_kind();
const TaskKind& adapters_kind();
const TaskKind& hellaswag_kind();
const TaskKind& cruxeval_kind();
const TaskKind& humaneval_kind();

}  // namespace dllm
