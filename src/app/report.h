#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "app/options.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// "41.2 tok/s · 12.1 ms/step · 6.4 tokens/step · NFE 10 · seed 0 · #9f3c..."
std::string stats_line(const Generation& generation, std::uint64_t seed);

/// "stop", "length", "cancelled"
std::string_view finish_name(FinishReason reason);

/// `options` with everything filled in that they leave to the model.
Expected<GenerateOptions> resolved_options(const std::string& model_path, const GenerateOptions& options);

/// What it takes to repeat a run: resolved options, model, version, host, command.
nlohmann::ordered_json run_config(const LanguageModel& model, const ModelFlags& flags, const GenerateOptions& options,
                                  const std::string& command);

/// Text, ids, commit order, confidences, statistics and hash. Undecided positions have id -1 or the mask's.
nlohmann::ordered_json generation_json(const Generation& generation);

nlohmann::ordered_json stats_json(const GenerateStats& stats);

/// One line, or indented; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string dump(const nlohmann::ordered_json& json, int indent = 2);

std::string hash_text(std::uint64_t hash);

}  // namespace dllm::app
