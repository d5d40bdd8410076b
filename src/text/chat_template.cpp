#include "text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"

namespace dllm {

namespace {

// Texts of the model's own tokens, which are markup wherever the template puts them.
bool is_special_token(std::string_view variable) {
  constexpr std::string_view kNames[] = {"bos_token", "eos_token",  "pad_token", "unk_token",
                                         "sep_token", "mask_token", "cls_token"};
  return std::ranges::find(kNames, variable) != std::ranges::end(kNames);
}

}  // namespace

std::set<std::string, std::less<>> template_inputs(std::string_view source) {
  std::set<std::string, std::less<>> read, made;
  const auto tokens = jinja::tokenize(source);
  if (!tokens) return read;
  const auto text = [&](std::size_t i) { return i < tokens->size() ? std::string_view((*tokens)[i].text) : ""; };
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    const jinja::Token& token = (*tokens)[i];
    const std::string_view before = i > 0 ? text(i - 1) : "";
    // Members, filters and tests have names of their own, and so have the arguments of calls ("indent=2").
    if (token.type != jinja::TokenType::kName || before == "." || before == "|" || before == "is") continue;
    if (before == "set" || before == "for" || before == "macro" || text(i + 1) == "=")
      made.insert(token.text);
    else if (!made.contains(token.text))
      read.insert(token.text);
  }
  return read;
}

const char* why_not_settable(std::string_view variable) {
  if (is_special_token(variable)) return "the model's special tokens are its own";
  if (variable == "messages" || variable == "tools") return "the conversation says it";
  return nullptr;
}

struct ChatTemplate::Impl {
  std::string source;
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Expected<ChatTemplate> ChatTemplate::compile(std::string source) {
  DLLM_TRY(jinja::Block block, jinja::parse_template(source));
  return ChatTemplate(std::make_unique<const Impl>(Impl{std::move(source), std::move(block)}));
}

Expected<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages, const Options& options) const {
  DLLM_TRY(MarkedText text, render_marked(messages, options));
  return std::move(text.bytes);
}

Expected<std::string> ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  DLLM_TRY(MarkedText text, render_marked(variables));
  return std::move(text.bytes);
}

Expected<MarkedText> ChatTemplate::render_marked(const std::vector<ChatMessage>& messages,
                                                 const Options& options) const {
  nlohmann::ordered_json variables;
  variables["messages"] = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    variables["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  variables["add_generation_prompt"] = options.add_generation_prompt;
  variables["bos_token"] = options.bos_token;
  variables["eos_token"] = options.eos_token;
  return render_marked(variables);
}

Expected<MarkedText> ChatTemplate::render_marked(const nlohmann::ordered_json& variables,
                                                 std::int64_t max_steps) const {
  if (!variables.is_object()) {
    return Error{ErrorCode::kUsage, "the variables of a chat template are not a JSON object", "", ""};
  }
  jinja::Runtime runtime{jinja::Limits{.steps = max_steps}};
  DLLM_TRY(jinja::ScopePtr globals, runtime.make_scope(nullptr));
  for (const auto& [name, json] : variables.items()) {
    auto value = jinja::from_json(json, /*content=*/!is_special_token(name));
    if (!value) {
      Error error = std::move(value).error();
      error.where = "chat template, variable '" + name + "'";
      return error;
    }
    globals->variables.insert_or_assign(name, *std::move(value));
  }
  return jinja::Interpreter(runtime, std::move(globals)).render(impl_->block);
}

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace dllm
