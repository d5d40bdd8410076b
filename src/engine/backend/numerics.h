#pragma once

#include <string>

#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/backends.h"
#include "model/model.h"

namespace dllm {

/// The load options that run_in_numerics() reads.
const LoadReader& numerics_reader();

/// The model from `path`, run on this processor in the number formats of the profile `options.numerics`. Errors: kUsage
/// naming the flag, and those of load_numerics() and AccuracyBackend::create().
Expected<RunningBackend> run_in_numerics(const Model& model, const std::string& path, const LoadOptions& options);

}  // namespace dllm
