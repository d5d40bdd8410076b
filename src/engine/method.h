#pragma once

#include <optional>
#include <string>

#include "decode/loop/denoiser.h"
#include "decode/loop/mode_loop.h"
#include "decode/loop/refiner.h"
#include "decode/loop/second_path_options.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "engine/option_parts.h"
#include "model/model_desc.h"

namespace dllm {

/// What `given` sets, and `base` for the rest: of a preset, of a server. If `given` chooses a method, what `base` sets
/// for another one does not apply.
GenerateOptions on_top_of(GenerateOptions base, const GenerateOptions& given);

/// Chooses the method of a part for a model and fills in all of its options, in `resolved`, which has the common ones
/// already. `decoder`: that of the first part; nullptr: none. Returns nullptr where the part does not apply to the
/// model. Errors: kUsage, with the option's flag.
Expected<const MethodDeclaration*> resolve_part(const OptionPart& part, const GenerateOptions& given,
                                                const ModelDesc& desc, const MethodDeclaration* decoder,
                                                ResolvedOptions& resolved);

/// For models that refine canvases: an option of models that fill masks.
Error meaningless_on_canvas(const OptionInfo& info);

/// The methods' view of resolved options. `latency`: borrowed; nullptr: unknown.
MethodContext method_context(const ResolvedOptions& resolved, const ModelDesc& desc,
                             const LatencyTable* latency = nullptr);

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

/// Of models that refine canvases: how long the request's canvases are.
CanvasDesc canvas_of(const ResolvedOptions& resolved, const ModelDesc& desc);

/// Options of the loop of models that refine whole canvases.
Expected<RefineOptions> refine_options(const ResolvedOptions& resolved, const ModelDesc& desc);

}  // namespace dllm
