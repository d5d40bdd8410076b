#pragma once

#include "decode/denoiser.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "model/model_desc.h"

namespace dllm {

/// `options` with every "as the model recommends" filled in, and checked against the option table and the model.
/// Errors: kUsage, naming the option.
Expected<GenerateOptions> resolve_options(const GenerateOptions& options, const ModelDesc& desc);

/// The parts that resolved options name.
Expected<Method> make_method(const GenerateOptions& resolved, const ModelDesc& desc);

/// The loop's own share of resolved options.
DenoiseOptions denoise_options(const GenerateOptions& resolved, const ModelDesc& desc);

}  // namespace dllm
