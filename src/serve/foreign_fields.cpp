#include "serve/foreign_fields.h"

#include <algorithm>
#include <string_view>

namespace dllm::serve {
namespace {

constexpr std::string_view kHints[] = {
    // OpenAI
    "access_programs", "background_options", "client_metadata", "max_tool_calls", "metadata", "moderation",
    "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "safety_identifier", "service_tier", "store", "user", "verbosity",
    // Anthropic. No request is refused here, so none falls back to another model.
    "betas", "billing_policy", "cache_control", "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo",
    "speed", "user_profile_id", "workspace_id",
    // llama.cpp. Parameters of samplers count only if these are switched on, which are errors of their own.
    "cache_prompt", "dry_allowed_length", "dry_base", "dry_penalty_last_n", "dry_sequence_breakers",
    "dynatemp_exponent", "id_slot", "min_keep", "mirostat_eta", "mirostat_tau", "n_cache_reuse", "n_discard", "n_keep",
    "post_sampling_probs", "response_fields", "return_progress", "return_tokens", "t_max_prompt_ms",
    "timings_per_token", "xtc_threshold",
    // vLLM, SGLang
    "cache_salt", "early_stopping", "guided_decoding_backend", "kv_transfer_params", "length_penalty",
    "mm_processor_kwargs", "priority", "request_id", "return_token_ids", "return_tokens_as_token_ids", "rid",
    "spaces_between_special_tokens",
    // Gateways. One model answers, whatever others a request would put up with.
    "models", "provider", "route", "session_id", "usage",
    // Ollama. A prompt that is too long is an error, and none is cut.
    "keep_alive", "shift", "truncate",
    // Thoughts, where no chat template is used; elsewhere they are read before
    "chat_template_kwargs", "enable_thinking", "include_reasoning", "reasoning", "reasoning_budget", "reasoning_effort",
    "reasoning_format", "separate_reasoning", "stream_reasoning", "think", "thinking", "thinking_budget",
    "thinking_budget_tokens", "thinking_token_budget"};

/// Fields that would change the answer, with the values that have no effect. Clients send these also where a model does
/// not support the option.
struct Neutral {
  std::string_view key;
  const char* values;  ///< a JSON list
};
constexpr Neutral kNeutral[] = {
    {"add_generation_prompt", "[true]"},
    {"add_special_tokens", "[false]"},
    {"allowed_token_ids", "[[]]"},
    {"audio", "[]"},
    {"background", "[false]"},
    {"bad_words", "[[]]"},
    {"best_of", "[1]"},
    {"compaction", "[]"},
    {"container", "[]"},
    {"context_management", R"([[], {}, {"edits": []}])"},
    {"continue_final_message", "[false]"},
    {"conversation", "[]"},
    {"detokenize", "[true]"},
    {"documents", "[[]]"},
    {"dry_multiplier", "[0]"},
    {"dynatemp_range", "[0]"},
    {"ebnf", R"([""])"},
    {"echo", "[false]"},
    {"extra_body", "[{}]"},
    {"frequency_penalty", "[0]"},
    {"function_call", R"(["none", "auto"])"},
    {"functions", "[[]]"},
    {"grammar", R"([""])"},
    {"grammar_lazy", "[false]"},
    {"guided_grammar", R"([""])"},
    {"guided_whitespace_pattern", "[]"},
    {"include", "[[]]"},
    {"include_stop_str_in_output", "[false]"},
    {"logit_bias", "[{}, []]"},
    {"lora", "[[]]"},
    {"mcp_servers", "[[]]"},
    {"min_p", "[0]"},
    {"min_tokens", "[0]"},
    {"mirostat", "[0]"},
    {"modalities", R"([["text"]])"},
    {"n_indent", "[0]"},
    {"n_probs", "[0]"},
    {"plugins", "[[]]"},
    {"presence_penalty", "[0]"},
    {"previous_response_id", "[]"},
    {"prompt_logprobs", "[0, false]"},
    {"repeat_last_n", "[-1]"},
    {"repeat_penalty", "[1]"},
    {"repetition_penalty", "[1]"},
    {"safe_prompt", "[false]"},
    {"seed", "[-1]"},
    {"stop_token_ids", "[[]]"},
    {"structural_tag", "[]"},
    {"t_max_predict_ms", "[0, -1]"},
    {"tfs_z", "[1]"},
    {"thread", "[]"},
    {"tool_choice", R"(["none", "auto", {"type": "auto"}, {"type": "none"}])"},
    {"tools", "[[]]"},
    {"top_a", "[0]"},
    {"top_n_sigma", "[-1, 0]"},
    {"transforms", "[[]]"},
    {"truncation", R"(["disabled", "auto"])"},
    {"typical_p", "[1]"},
    {"use_beam_search", "[false]"},
    {"web_search_options", "[]"},
    {"xtc_probability", "[0]"},
};

const Neutral* neutral_of(std::string_view field) {
  const auto* const found = std::ranges::find(kNeutral, field, &Neutral::key);
  return found == std::end(kNeutral) ? nullptr : found;
}

}  // namespace

bool is_hint(const std::string& field) { return std::ranges::count(kHints, field) > 0; }

bool asks_for_something(const Json& value) {
  const bool nothing = value == false || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
                       (value.is_structured() && value.empty());
  return !nothing;
}

Foreign foreign_value(const std::string& field, const Json& value) {
  const Neutral* const known = neutral_of(field);
  if (known == nullptr) return Foreign::kUnknown;
  return std::ranges::count(Json::parse(known->values), value) > 0 ? Foreign::kNeutral : Foreign::kOther;
}

Error foreign_error(const std::string& field) {
  const Neutral* const known = neutral_of(field);
  const Json values = known == nullptr ? Json::array() : Json::parse(known->values);
  return {ErrorCode::kUsage, "it is not supported, and would change the answer", field,
          values.empty() ? "leave it out" : "leave it out, or give " + dump(values.front())};
}

}  // namespace dllm::serve
