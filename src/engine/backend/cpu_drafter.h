#pragma once

#include <memory>

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

/// The copy of the model that --draft-model names. Errors: of a file that cannot be read; those of check_draft_model().
Expected<std::shared_ptr<const Model>> open_copy(const Model& model, const LoadOptions& options, const Log& log);

/// Lets the copy compute the drafts of the CpuBackend in `running`, with its caches. `cpu`: what that backend was made
/// with, and the copy's weight cache. Errors: those of CpuBackend::create().
Expected<void> add_copy(const std::shared_ptr<const Model>& drafts, CpuOptions cpu, RunningBackend& running);

/// Puts the drafter, which runs on this processor, beside the backend in `running`, which hands out the hidden states
/// that it reads. `cpu`: what a CpuBackend was made with, or how the drafter's are made. Errors: those of
/// CpuBackend::create().
Expected<void> add_drafter(const Model& target, const std::shared_ptr<const Model>& drafter, CpuOptions cpu,
                           RunningBackend& running);

}  // namespace dllm
