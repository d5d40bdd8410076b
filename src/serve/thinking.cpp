// Thoughts: what requests say about them, and what that means to a chat template. Conventions: OpenAI's
// `reasoning_effort` and `reasoning`, Anthropic's `thinking`, Ollama's `think`; llama.cpp, vLLM and SGLang's
// `chat_template_kwargs`; llama.cpp's `reasoning_format`, vLLM's `include_reasoning`, SGLang's `separate_reasoning`.
#include "serve/thinking.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/try.h"
#include "serve/call_forms.h"
#include "text/chat_template.h"

namespace dllm::serve {
namespace {

constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};

/// Variables by which published templates switch thoughts.
constexpr std::array<const char*, 5> kSwitches = {"enable_thinking", "thinking", "think", "enable_reasoning",
                                                  "reasoning"};
constexpr std::string_view kSeal = "dllm:";
constexpr const char* kOutputEffort = "output_config.effort";

/// Whether a template has message.FIELD or message['FIELD'].
bool reads_member(std::string_view source, std::string_view field) {
  for (std::size_t at = source.find(field); at != source.npos; at = source.find(field, at + 1)) {
    const char before = at > 0 ? source[at - 1] : ' ';
    const std::size_t end = at + field.size();
    const char after = end < source.size() ? source[end] : ' ';
    const bool word = after == '_' || (after >= 'a' && after <= 'z') || (after >= '0' && after <= '9');
    if ((before == '.' && !word) || ((before == '\'' || before == '"') && after == before)) return true;
  }
  return false;
}

Expected<void> want(Thinking& thinking, bool wanted, const std::string& field) {
  if (thinking.wanted && *thinking.wanted != wanted)
    return Error{ErrorCode::kUsage, fmt::format("'{}' says the opposite", thinking.wanted_by), field, "leave one out"};
  thinking.wanted = wanted;
  thinking.wanted_by = field;
  return {};
}

Expected<void> read_effort(const Json& value, const std::string& field, Thinking& thinking) {
  if (!value.is_string() || std::ranges::count(kEfforts, value.get_ref<const std::string&>()) == 0)
    return wrong_type(field, fmt::format("one of {}", fmt::join(kEfforts, ", ")));
  const auto& effort = value.get_ref<const std::string&>();
  if (thinking.effort && *thinking.effort != effort)
    return Error{ErrorCode::kUsage, fmt::format("'{}' says something else", thinking.effort_field), field,
                 "leave one out"};
  thinking.effort = effort;
  thinking.effort_field = field;
  return effort == "none" ? want(thinking, false, field) : Expected<void>();
}

/// true, false or an effort.
Expected<void> read_switch(const Json* value, const std::string& field, Thinking& thinking) {
  if (value == nullptr) return {};
  if (value->is_boolean()) return want(thinking, value->get<bool>(), field);
  if (value->is_string()) return read_effort(*value, field, thinking);
  return wrong_type(field, "true, false or an effort");
}

constexpr std::int64_t kMostBudget = std::int64_t{1} << 40;

Expected<void> read_budget(Fields& fields, const char* key, const std::string& path, Thinking& thinking) {
  DLLM_TRY(const auto budget, fields.integer(key, -1, kMostBudget));
  if (!budget) return {};
  thinking.budget = *budget;
  thinking.budget_field = path;
  return {};
}

/// Anthropic's object, which others have taken over. Errors: kUsage.
Expected<void> read_thinking_object(const Json& value, Ignored* ignored, Thinking& thinking) {
  if (!value.is_object()) return read_switch(&value, "thinking", thinking);
  Fields own(value, ignored, "thinking");
  DLLM_TRY(const auto type, own.text("type"));
  if (type == "disabled") {
    DLLM_CHECK_OK(want(thinking, false, "thinking"));
  } else if (type == "enabled" || type == "adaptive" || type == "auto" || type == "between_tools") {
    DLLM_CHECK_OK(want(thinking, true, "thinking"));
  } else {
    return wrong_type("thinking.type", "\"enabled\", \"adaptive\" or \"disabled\"");
  }
  DLLM_CHECK_OK(read_budget(own, "budget_tokens", "thinking.budget_tokens", thinking));
  DLLM_TRY(const auto display, own.text("display"));
  if (display && display != "summarized" && display != "omitted")
    return wrong_type("thinking.display", "\"summarized\" or \"omitted\"");
  thinking.sealed = display == "omitted";
  // Where thoughts that are sent back come from is not checked, so a failed check has no consequence.
  own.ignore("block_binding");
  return own.done();
}

/// `reasoning` of the Responses API and of OpenRouter.
Expected<void> read_reasoning(const Json& value, Ignored* ignored, Thinking& thinking) {
  if (!value.is_object()) return wrong_type("reasoning", "an object");
  Fields own(value, ignored, "reasoning");
  if (const Json* effort = own.find("effort")) DLLM_CHECK_OK(read_effort(*effort, "reasoning.effort", thinking));
  DLLM_CHECK_OK(read_switch(own.find("enabled"), "reasoning.enabled", thinking));
  DLLM_CHECK_OK(read_budget(own, "max_tokens", "reasoning.max_tokens", thinking));
  DLLM_TRY(const bool excluded, own.flag("exclude", false));
  thinking.hidden = thinking.hidden || excluded;
  for (const char* key : {"summary", "generate_summary", "context", "mode"}) own.ignore(key);
  return own.done();
}

/// Anthropic's `output_config.effort`, which does not switch thoughts on or off.
Expected<void> read_output_effort(const Json* config, Thinking& thinking) {
  if (config == nullptr || !config->is_object()) return {};  // read_structure() checks it
  const Json effort = config->value("effort", Json());
  if (effort.is_null()) return {};
  if (effort == "none") return wrong_type("output_config.effort", "low, medium, high, xhigh or max");
  return read_effort(effort, kOutputEffort, thinking);
}

Expected<void> read_shape(Fields& fields, const ServedModel& served, Thinking& thinking) {
  thinking.apart = served.options.split_thoughts;
  DLLM_TRY(const auto format, fields.text("reasoning_format"));
  if (format && format != "none" && format != "auto" && format != "deepseek")
    return wrong_type("reasoning_format", "\"auto\", \"deepseek\" or \"none\"");
  if (format) thinking.apart = format != "none";
  DLLM_TRY(const bool separate, fields.flag("separate_reasoning", thinking.apart));
  thinking.apart = separate;
  DLLM_TRY(const bool included, fields.flag("include_reasoning", true));
  thinking.hidden = thinking.hidden || !included;
  DLLM_TRY(const bool streamed, fields.flag("stream_reasoning", true));
  if (!streamed) fields.ignore("stream_reasoning");
  return {};
}

}  // namespace

Expected<Thinking> read_thinking(Fields& fields, const ServedModel& served) {
  Thinking thinking;
  thinking.defaults = Json::parse(served.model.template_variables());
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object()) return wrong_type("chat_template_kwargs", "an object");
    for (const auto& [name, value] : given->items())
      if (const char* const why = why_not_settable(name))
        return Error{ErrorCode::kUsage, why, "chat_template_kwargs." + name, "leave it out"};
    thinking.variables = *given;
  }
  DLLM_CHECK_OK(read_switch(fields.find("enable_thinking"), "enable_thinking", thinking));
  DLLM_CHECK_OK(read_switch(fields.find("think"), "think", thinking));
  if (const Json* value = fields.find("thinking"))
    DLLM_CHECK_OK(read_thinking_object(*value, fields.ignored(), thinking));
  if (const Json* effort = fields.find("reasoning_effort"))
    DLLM_CHECK_OK(read_effort(*effort, "reasoning_effort", thinking));
  if (const Json* value = fields.find("reasoning")) DLLM_CHECK_OK(read_reasoning(*value, fields.ignored(), thinking));
  DLLM_CHECK_OK(read_output_effort(fields.find("output_config"), thinking));
  for (const char* key : {"thinking_budget", "thinking_budget_tokens", "thinking_token_budget", "reasoning_budget"})
    DLLM_CHECK_OK(read_budget(fields, key, key, thinking));
  DLLM_CHECK_OK(read_shape(fields, served, thinking));
  for (const char* key : kSwitches)
    if (const Json set = thinking.variables.value(key, Json()); set.is_boolean() && thinking.wanted)
      DLLM_CHECK_OK(want(thinking, set.get<bool>(), fmt::format("chat_template_kwargs.{}", key)));
  return thinking;
}

std::optional<bool> Thinking::asks() const {
  if (wanted) return wanted;
  for (const char* key : kSwitches)
    if (const Json set = variables.value(key, Json()); set.is_boolean()) return set.get<bool>();
  if (effort && effort_field != kOutputEffort) return true;
  for (const char* key : kSwitches)
    if (const Json set = defaults.value(key, Json()); set.is_boolean()) return set.get<bool>();
  return std::nullopt;
}

TemplateWish template_wish(const Thinking& thinking, const TemplateFacts& facts, bool structured, Ignored& ignored) {
  TemplateWish wish;
  Json& variables = wish.variables;
  for (const auto& [name, value] : thinking.variables.items()) {
    if (facts.inputs.contains(name))
      variables[name] = value;
    else
      ignored.add("chat_template_kwargs." + name);
  }
  const auto set = [&](const char* name, const Json& value) {
    if (!facts.inputs.contains(name)) return false;
    if (!variables.contains(name)) variables[name] = value;
    return true;
  };
  std::optional<bool> on = thinking.asks();
  if (!on && structured) on = false;
  if (on)
    for (const std::string& name : facts.thought_switches) wish.switched = set(name.c_str(), *on) || wish.switched;
  const bool has_effort = thinking.effort && set("reasoning_effort", *thinking.effort);
  if (thinking.effort && !has_effort && (!wish.switched || thinking.effort_field == kOutputEffort))
    ignored.add(thinking.effort_field);
  wish.switched = wish.switched || has_effort;
  if (thinking.budget && !set("thinking_budget", *thinking.budget)) ignored.add(thinking.budget_field);
  return wish;
}

namespace {

/// Those that are a token of their own.
template <class Texts>
void add_markers(const LanguageModel& model, const Texts& markers, std::vector<std::int32_t>& found) {
  for (const auto& marker : markers)
    if (const auto ids = model.tokenize(std::string(marker), /*special=*/true);
        ids && ids->size() == 1 && std::ranges::count(found, ids->front()) == 0)
      found.push_back(ids->front());
}

}  // namespace

TemplateFacts template_facts(const LanguageModel& model, bool tools) {
  TemplateFacts facts;
  const std::string source = model.chat_template(tools);
  facts.thoughts = thought_format(source);
  facts.inputs = template_inputs(source);
  add_markers(model, facts.thoughts.markers(), facts.markers);
  if (tools)
    for (const CallForm& form : call_forms())
      if (source.find(form.open) != source.npos) add_markers(model, form.markers, facts.markers);
  for (const char* name : kSwitches)
    if (facts.inputs.contains(name)) facts.thought_switches.emplace_back(name);
  for (const char* field : {"reasoning_content", "reasoning", "thinking"})
    if (reads_member(source, field)) facts.thought_fields.emplace_back(field);
  return facts;
}

std::string sealed_thoughts(const std::string& thoughts) { return std::string(kSeal) + thoughts; }

std::optional<std::string> unsealed_thoughts(const std::string& text) {
  if (!text.starts_with(kSeal)) return std::nullopt;
  return text.substr(kSeal.size());
}

}  // namespace dllm::serve
