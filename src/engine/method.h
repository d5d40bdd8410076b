#pragma once

#include <optional>
#include <string>

#include "decode/denoiser.h"
#include "decode/refiner.h"
#include "decode/second_path_options.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "model/model_desc.h"

namespace dllm {

/// Which latency table the options ask for: a file's path, or "auto"; empty: no method asks what steps cost.
std::string latency_name(const ResolvedOptions& resolved);

/// The parts that resolved options name. `latency`: borrowed; nullptr: unknown.
Expected<Method> make_method(const ResolvedOptions& resolved, const ModelDesc& desc,
                             const LatencyTable* latency = nullptr);

/// The second path that the decoder asks for; nullopt: none.
std::optional<SecondPathOptions> second_path_of(Decoder& decoder);

/// The loop's own share of resolved options.
Expected<DenoiseOptions> denoise_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                         const LatencyTable* latency = nullptr);

/// The same for models that refine whole canvases.
Expected<RefineOptions> refine_options(const ResolvedOptions& resolved, const ModelDesc& desc);

}  // namespace dllm
