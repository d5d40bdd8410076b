#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/backends.h"
#include "model/model.h"

namespace dllm {

/// The drafter that --draft-model names, with what its file leaves to `target`; null if the option names none, or a
/// copy of the model. Errors: of a file that cannot be read; kMismatch, if it drafts for another model.
Expected<std::shared_ptr<const Model>> open_drafter(const Model& target, const LoadOptions& options, const Log& log);

/// The layers whose outputs the drafter reads, so that its model's graphs hand them out; none without a drafter (null,
/// or a copy of the model).
std::vector<std::int32_t> layers_read_by(const std::shared_ptr<const Model>& drafter);

/// Puts the drafter's graphs, for hidden states and for blocks, beside the backend in `running`, which hands out the
/// hidden states that it reads. `cost`: of a pass over a block, in passes of the model over as many rows.
void put_beside(const std::shared_ptr<const Model>& drafter, std::unique_ptr<Backend> context,
                std::unique_ptr<Backend> block, double cost, RunningBackend& running);

/// The same with graphs that run on this processor. `cpu`: what a CpuBackend was made with, or how the drafter's are
/// made. Errors: those of CpuBackend::create().
Expected<void> add_drafter(const Model& target, const std::shared_ptr<const Model>& drafter, CpuOptions cpu,
                           RunningBackend& running);

/// The copy of the model that --draft-model names. Errors: of a file that cannot be read; those of check_draft_model().
Expected<std::shared_ptr<const Model>> open_copy(const Model& model, const LoadOptions& options, const Log& log);

/// Lets the copy compute the drafts of the CpuBackend in `running`, with its caches. `cpu`: what that backend was made
/// with, and the copy's weight cache. Errors: those of CpuBackend::create().
Expected<void> add_copy(const std::shared_ptr<const Model>& drafts, CpuOptions cpu, RunningBackend& running);

}  // namespace dllm
