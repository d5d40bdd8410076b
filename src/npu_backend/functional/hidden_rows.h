#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "npu_compiler/compiler/layout.h"
#include "npu_compiler/compiler/split_step.h"

namespace dllm::npu {

/// Writes what op::HiddenIn reads of a batch's plans to the places that a compiled step expects. `hbm`: the memory from
/// address 0. Sequences without rows are not in the step.
void write_hidden(const SplitStep& step, const ModelLayout& layout, std::span<const SequenceStep> batch,
                  std::byte* hbm);

/// What op::HiddenOut handed out in the run, [row or scored row][columns], in the order of the batch.
std::vector<float> read_hidden(const SplitStep& step, const ModelLayout& layout, const std::byte* hbm);

}  // namespace dllm::npu
