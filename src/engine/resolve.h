#pragma once

#include "decode/method_entry.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "model/model_desc.h"

namespace dllm {

/// The only place where options are resolved: applies the preset, chooses methods, fills in every default, and checks
/// everything against its declaration, the other options and the model. An option that is not read is an error that
/// names the methods that read it. `canvas`: the length that the model's file recommends (canvas_length()), 0: none.
/// Errors: kUsage, with the option's flag; kInvalidFile (the model lacks something that decoding needs).
Expected<ResolvedOptions> resolve_options(const GenerateOptions& options, const ModelDesc& desc,
                                          std::int32_t canvas = 0);

}  // namespace dllm
