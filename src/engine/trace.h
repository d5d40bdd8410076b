#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "dllm/generate.h"
#include "dllm/model.h"
#include "dllm/options.h"

namespace dllm {

/// Traces: how answers were denoised, step by step, as one JSON document. `dllm run --trace` writes them, the server's
/// events (`diffusion_events`) have the same parts, and the server's page makes, loads and shows them. The format is in
/// docs/guide/serving.md#traces; kTraceVersion changes when a reader of the old one would misread the new one.
inline constexpr std::int32_t kTraceVersion = 1;

/// [position in the answer, token id (-1: a mask again), its text, confidence] of every position that the step changed.
/// `first`: of every position that is no mask, the given ones too.
nlohmann::ordered_json trace_changes(const LanguageModel& model, const StepEvent& event, bool first);

/// {"step", "nfe", "masked", "positions", "seconds", "window", "changes"}. `seconds`: since the answer was begun;
/// `first`: no step was told before.
nlohmann::ordered_json trace_step(const LanguageModel& model, const StepEvent& event, double seconds, bool first);

/// "stop", "length", "cancelled"
std::string_view finish_name(FinishReason reason);

/// {"text", "finish", "answer_tokens", "nfe", "steps", "seconds", "seed", "hash"}
nlohmann::ordered_json trace_result(const Generation& generation);

/// Every option that was read, by key.
nlohmann::ordered_json options_json(const ResolvedOptions& options);

/// One answer: its model, messages, options, steps and result. `messages`, `steps`: lists.
nlohmann::ordered_json trace_run(const LanguageModel& model, nlohmann::ordered_json messages,
                                 nlohmann::ordered_json steps, const Generation& generation);

/// The document. `runs`: a list of trace_run().
nlohmann::ordered_json trace_document(nlohmann::ordered_json runs);

}  // namespace dllm
