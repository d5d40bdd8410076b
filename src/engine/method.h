#pragma once

#include <optional>
#include <string>

#include "decode/loop/denoiser.h"
#include "decode/loop/mode_loop.h"
#include "decode/loop/refiner.h"
#include "decode/loop/second_path_options.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "model/model_desc.h"

namespace dllm {

/// The latency table that the options name: a file's path, or "auto"; empty: no method uses the cost of steps.
std::string latency_name(const ResolvedOptions& resolved);

/// The methods that resolved options name. `latency`: borrowed; nullptr: unknown.
Expected<Method> make_method(const ResolvedOptions& resolved, const ModelDesc& desc,
                             const LatencyTable* latency = nullptr);

/// The second path that the decoder needs; nullopt: none.
std::optional<SecondPathOptions> second_path_of(const ResolvedOptions& resolved, const ModelDesc& desc);

/// Options of the loop itself.
Expected<DenoiseOptions> denoise_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                         const LatencyTable* latency = nullptr);

/// The same for models of several modes. Precondition: the options name one.
Expected<ModeLoopOptions> mode_options(const ResolvedOptions& resolved, const ModelDesc& desc,
                                       const LatencyTable* latency = nullptr);

/// The same for models that refine whole canvases.
/// Of models that refine canvases: how long the request's canvases are.
CanvasDesc canvas_of(const ResolvedOptions& resolved, const ModelDesc& desc);
Expected<RefineOptions> refine_options(const ResolvedOptions& resolved, const ModelDesc& desc);

}  // namespace dllm
