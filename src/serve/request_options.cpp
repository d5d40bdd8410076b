#include "serve/request_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <set>

#include "base/nearest.h"
#include "base/try.h"
#include "engine/answer_length.h"
#include "engine/common_options.h"
#include "engine/ends.h"
#include "engine/method.h"
#include "engine/option_parts.h"
#include "serve/foreign_fields.h"
#include "serve/structure.h"

namespace dllm::serve {
namespace {

constexpr std::uint64_t kMostBound = std::numeric_limits<std::int32_t>::max();

/// Options that name files of the server, or take threads from others, can only be set by the operator.
bool is_operators(const OptionInfo& info) { return info.type == OptionType::kText || info.key == "refresh_threads"; }

/// The key of the option that a field sets; empty: none.
std::string option_key(const std::string& field) {
  std::string flag = "--" + field;
  std::ranges::replace(flag, '_', '-');
  const auto names = [&](const OptionInfo& info) {
    return !info.key.empty() && (info.key == field || names_option(info, flag));
  };
  if (field == "preset") return field;
  if (field == "max_completion_tokens" || field == "max_output_tokens") return "max_tokens";
  for (const OptionInfo& info : options_info().common)
    if (names(info) && info.key != "tool_calls") return info.key;  // `tools` and `tool_choice` set it
  for (const PartInfo& part : options_info().parts) {
    if (names(part.selector)) return part.selector.key;
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& info : method.options)
        if (names(info) && !is_operators(info)) return info.key;
  }
  return "";
}

bool is_set(const GenerateOptions& options, const std::string& key) {
  return std::ranges::any_of(common_options(), [&](const CommonOption& one) {
    return one.info().key == key && one.given.load(options).has_value();
  });
}

/// Whether it is a field whose value asks for nothing, and which need not overrule the server's default. Errors:
/// another value of a field that is no option.
Expected<bool> is_neutral(const std::string& field, const Json& value, const GenerateOptions& defaults) {
  const std::string option = option_key(field);
  switch (foreign_value(field, value)) {
    case Foreign::kUnknown:
      return false;
    case Foreign::kNeutral:
      return !is_set(defaults, option);
    case Foreign::kOther:
      if (option.empty()) return foreign_error(field);
      return false;
  }
  return false;
}

/// Whether the repetition of tokens changes their probabilities.
bool has_penalty(Fields& fields, const GenerateOptions& defaults) {
  for (const char* key : {"repeat_penalty", "repetition_penalty", "presence_penalty", "frequency_penalty"}) {
    const Json* value = fields.find(key);
    if (value != nullptr && foreign_value(key, *value) == Foreign::kOther) return true;
  }
  return defaults.repetition_penalty || defaults.presence_penalty || defaults.frequency_penalty;
}

Error unknown_field(const std::string& field) {
  std::vector<std::string> known = {"messages", "prompt", "stop", "stream", "model", "preset", "logprobs"};
  for (const OptionInfo& info : options_info().common) known.push_back(info.key);
  for (const PartInfo& part : options_info().parts) {
    if (!part.selector.key.empty()) known.push_back(part.selector.key);
    for (const MethodInfo& method : part.methods)
      for (const OptionInfo& info : method.options) known.push_back(info.key);
  }
  const std::string near = nearest(field, known);
  return {ErrorCode::kUsage, "there is no such field", field,
          near.empty() || near == field ? "GET /props lists the options" : "did you mean '" + near + "'?"};
}

/// {"ID": BIAS, …} of OpenAI or [[ID, BIAS], …] of llama.cpp, where false excludes a token, as the option's text.
Expected<std::string> bias_text(const std::string& field, const Json& value) {
  const Error wrong = wrong_type(field, "token ids with biases: {\"15043\": 2.5}");
  std::string text;
  const auto add = [&text](const std::string& id, const Json& bias) {
    if (!bias.is_number() && bias != Json(false)) return false;
    const std::string number = bias.is_number() ? fmt::format("{:+}", bias.get<double>()) : "-inf";
    text += (text.empty() ? "" : ",") + id + number;
    return true;
  };
  for (const auto& [key, one] : value.items()) {
    const bool pair = value.is_array() && one.is_array() && one.size() == 2 && one[0].is_number_unsigned();
    if (!(pair ? add(dump(one[0]), one[1]) : value.is_object() && add(key, one))) return wrong;
  }
  return text;
}

Expected<std::string> option_text(const std::string& field, const std::string& key, const Json& value) {
  // A bound beyond every context is no error, however large.
  if (key == "max_tokens" && value.is_number_unsigned() && value.get<std::uint64_t>() > kMostBound)
    return std::to_string(kMostBound);
  if (key == "top_k" && value == -1) return std::string("0");  // vLLM's word for all tokens
  if (field == "logit_bias" && (value.is_object() || value.is_array())) return bias_text(field, value);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return dump(value);
  return wrong_type(field, "a number, a text, true or false");
}

/// Takes the request's filters out of `options`, which decode greedily, and names those that would filter something.
void ignore_filters(Fields& fields, const GenerateOptions& asked, const GenerateOptions& defaults,
                    GenerateOptions& options) {
  for (const CommonOption& one : common_options()) {
    if (!one.filter) continue;
    const std::string& key = one.info().key;
    const auto value = one.given.load(asked);
    if (value && value != one.info().standard && fields.find(key) != nullptr) fields.ignore(key);
    one.clear(options);
    if (const auto ours = one.given.load(defaults)) one.given.store(options, *ours);
  }
}

/// Where the bound is the canvas, `length` alone says it. `asked`: by the request.
Expected<void> bound_to_canvas(const GenerateOptions& asked, GenerateOptions& options) {
  if (!asked.length) DLLM_CHECK_OK(take_bound_as_canvas(options));
  options.max_tokens.reset();
  return {};
}

/// Lowers the bound to the server's limit. Errors: a canvas above it.
Expected<void> limit_length(const LanguageModel& model, const ServerOptions& server, GenerateOptions& options) {
  DLLM_TRY(const ResolvedOptions resolved, model.resolve(options));
  if (!server.max_tokens) return {};
  const std::int32_t most = *server.max_tokens;
  if (!resolved.own_length && resolved.length > most)
    return Error{ErrorCode::kUsage, fmt::format("this server generates at most {} tokens per request", most), "length",
                 "ask for fewer"};
  const std::int32_t asked = options.max_tokens.value_or(resolved.length);
  if (asked < 0 || asked > most) options.max_tokens = most;
  return {};
}

}  // namespace

Expected<GenerateOptions> read_options(Fields& fields, const LanguageModel& model, const ServerOptions& server,
                                       Bound bound) {
  constexpr std::size_t kMostStops = 16, kLongestStop = 512;
  GenerateOptions asked;
  DLLM_CHECK_OK(read_structure(fields, asked));
  DLLM_TRY(asked.stop, fields.texts("stop", kMostStops));
  for (const std::string& stop : asked.stop)
    if (stop.empty() || stop.size() > kLongestStop)
      return wrong_type("stop", fmt::format("texts of 1 to {} bytes", kLongestStop));
  DLLM_TRY(const bool endless, fields.flag("ignore_eos", false));
  std::set<std::string> given;
  for (const std::string& field : fields.rest()) {
    const Json& value = *fields.find(field);
    if (is_hint(field)) {
      if (asks_for_something(value)) fields.ignore(field);
      continue;
    }
    // How far back a penalty looks: without one, nowhere.
    if (field == "repeat_last_n" && !has_penalty(fields, server.defaults)) {
      fields.ignore(field);
      continue;
    }
    DLLM_TRY(const bool neutral, is_neutral(field, value, server.defaults));
    if (neutral) continue;
    std::string key = option_key(field);
    if (key.empty()) return unknown_field(field);
    if (key == "max_tokens" && bound == Bound::kIsCanvas) key = "length";
    if (!given.insert(key).second)
      return Error{ErrorCode::kUsage, fmt::format("'{}' is given under two names", key), field, "leave one out"};
    DLLM_TRY(const std::string text, option_text(field, key, value));
    if (auto set = asked.set(key, text); !set) {
      Error error = std::move(set).error();
      error.where = field;
      return error;
    }
  }
  if (endless) DLLM_CHECK_OK(never_end(model, asked));  // as llama.cpp's `ignore_eos`
  GenerateOptions options = on_top_of(server.defaults, asked);
  if (bound == Bound::kIsCanvas) DLLM_CHECK_OK(bound_to_canvas(asked, options));
  // Other servers ignore these in greedy decoding, and their clients always send them.
  if (options.temperature.value_or(0) == 0)
    if (const auto resolved = model.resolve(options); !resolved && filter_of(resolved.error().where) != nullptr)
      ignore_filters(fields, asked, server.defaults, options);
  if (!options.seed && options.temperature.value_or(0) > 0) options.seed = std::random_device{}();
  DLLM_CHECK_OK(limit_length(model, server, options));
  return options;
}

}  // namespace dllm::serve
