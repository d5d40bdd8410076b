#pragma once

#include "decode/refiner.h"
#include "dllm/error.h"
#include "dllm/generate.h"
#include "model/model_desc.h"

namespace dllm {

/// resolve_options() for models that refine canvases. Their one method is named after what it is made of:
/// `entropy-bound` decoding of `block`s (whole canvases) with a `prefix` cache. Options of other methods are errors
/// (kUsage), so that none is ignored.
Expected<GenerateOptions> resolve_canvas_options(const GenerateOptions& options, const ModelDesc& desc);

/// The loop's share of resolved options.
RefineOptions refine_options(const GenerateOptions& resolved, const ModelDesc& desc);

}  // namespace dllm
