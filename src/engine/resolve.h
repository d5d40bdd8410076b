#pragma once

#include "decode/method_entry.h"
#include "dllm/error.h"
#include "dllm/options.h"
#include "model/model_desc.h"

namespace dllm {

/// The only place where options are settled: the preset applied, methods chosen, every default filled in, everything
/// checked against its declaration, the other options and the model. An option that nothing reads is an error that says
/// which methods read it. `canvas`: the length that the model's file recommends (canvas_length()), 0: none. Errors:
/// kUsage, with the option's flag; kInvalidFile (a model without what decoding needs).
Expected<ResolvedOptions> resolve_options(const GenerateOptions& options, const ModelDesc& desc,
                                          std::int32_t canvas = 0);

/// What the methods are told of resolved options. `latency`: borrowed; nullptr: unknown.
MethodContext method_context(const ResolvedOptions& resolved, const ModelDesc& desc,
                             const LatencyTable* latency = nullptr);

}  // namespace dllm
