#pragma once

#include <optional>

#include "npu_compiler/sweep/run.h"

// A finished sweep as one packed copy in the results database, next to its points: a million points are read in a
// fraction of a second. It belongs to the same axes in the same order; limits and plot are applied afterwards.

namespace dllm::npu {

/// Errors: of the store.
Expected<void> keep_finished_sweep(const SweepSpec& spec, SweepStore& store, const SweepReport& report);
/// nullopt: not finished, or the copy is damaged. Every point counts as reused, except duplicates and invalid ones.
Expected<std::optional<SweepReport>> finished_sweep(const SweepSpec& spec, const SweepStore& store, int threads);

}  // namespace dllm::npu
