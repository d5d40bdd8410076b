#pragma once

#include <string>

#include "decode/denoiser.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "model/model_desc.h"

namespace dllm {

/// `options` with every "as the model recommends" filled in, and checked against the option table and the model.
/// Errors: kUsage, naming the option.
Expected<GenerateOptions> resolve_options(const GenerateOptions& options, const ModelDesc& desc);

/// GenerateOptions::latency, or "auto" if a part of the method asks what steps cost; empty: nobody does.
std::string latency_name(const GenerateOptions& resolved);

/// The parts that resolved options name. `latency`: borrowed; nullptr: unknown.
Expected<Method> make_method(const GenerateOptions& resolved, const ModelDesc& desc,
                             const LatencyTable* latency = nullptr);

/// The loop's own share of resolved options.
DenoiseOptions denoise_options(const GenerateOptions& resolved, const ModelDesc& desc,
                               const LatencyTable* latency = nullptr);

}  // namespace dllm
