#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "app/cli/options.h"
#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// "answer 12 tokens, 41.2 tok/s · canvas 64 tokens, 219.7 tok/s · 12.10 ms/step · NFE 10 · seed 0 · #9f3c...": the
/// answer up to its end, and all decided positions. `arithmetic` comes last, if not empty.
std::string stats_line(const Generation& generation, std::string_view arithmetic = {});

/// The model's arithmetic if an option chose it, else nothing.
std::string told_arithmetic(const LanguageModel& model, const LoadOptions& load);

/// A message for an answer without visible characters; empty: it has some.
std::string empty_answer_note(const Generation& generation);

/// What is needed to repeat a run: resolved options, model, version, host, command.
nlohmann::ordered_json run_config(const LanguageModel& model, const ModelFlags& flags, const ResolvedOptions& options,
                                  const std::string& command);

/// "mobile-sm8750, virtual time: prompt 170 ms, first block 1.69 s, answer 6.71 s (19.1 tok/s), 35.2 J"; empty
/// without virtual time.
std::string virtual_line(const Generation& generation);

/// {"ms", "joules", "parts_ms", "parts_joules"}: sums over answers
nlohmann::ordered_json virtual_sum_json(const VirtualParts& parts, const VirtualEnergy& energy);
/// {"device", "ms", "joules", "prompt_ms", "first_block_ms", "tokens_per_second", "parts_ms", "parts_joules", "steps"}
nlohmann::ordered_json virtual_json(const VirtualTime& time, std::int32_t answer_tokens);

/// Text, ids, commit order, confidences, statistics and hash, and the virtual time if there is one. Undecided positions
/// have id -1 or the mask's.
nlohmann::ordered_json generation_json(const Generation& generation);

nlohmann::ordered_json stats_json(const GenerateStats& stats);

/// One line, or indented; invalid UTF-8 becomes U+FFFD instead of an exception.
std::string dump(const nlohmann::ordered_json& json, int indent = 2);

std::string hash_text(std::uint64_t hash);

}  // namespace dllm::app
