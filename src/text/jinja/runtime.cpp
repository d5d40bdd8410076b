#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "text/utf8.h"

namespace dllm::jinja {

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

const Value* Arguments::find(std::size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [known, value] : named) {
    if (known == name) return &value;
  }
  return nullptr;
}

// Macros own scopes, which own values that refer to macros by plain pointers: there are no ownership cycles, and the
// order of destruction does not matter.
Runtime::~Runtime() = default;

Expected<void> Runtime::step(std::int64_t count) {
  steps_ += count;
  if (steps_ > limits_.steps) return limit_error(fmt::format("the template takes more than {} steps", limits_.steps));
  return {};
}

Expected<void> Runtime::scan(const Value& value) {
  constexpr std::size_t kBytesPerStep = 1024;
  const std::string* text = value.text();
  return step(text != nullptr ? static_cast<std::int64_t>(text->size() / kBytesPerStep) : 0);
}

Expected<void> Runtime::allocate(std::size_t bytes) {
  if (bytes > limits_.output) return limit_error(fmt::format("a text grows beyond {} bytes", limits_.output));
  allocated_ += bytes;
  if (allocated_ > limits_.allocation) {
    return limit_error(fmt::format("the template makes more than {} bytes of texts", limits_.allocation));
  }
  return {};
}

Expected<Value> Runtime::text(std::string bytes) {
  DLLM_CHECK_OK(allocate(bytes.size()));
  return charged(std::move(bytes));
}

Expected<Value> Runtime::text(MarkedText text) {
  DLLM_CHECK_OK(allocate(text.bytes.size()));
  return Value(std::move(text));
}

Value Runtime::charged(std::string bytes) const {
  return content_ ? Value(MarkedText::content(std::move(bytes))) : Value(std::move(bytes));
}

Expected<std::string> Runtime::str(const Value& value) {
  DLLM_TRY(std::string text, to_text(value, limits_.output));
  DLLM_CHECK_OK(allocate(text.size()));
  return text;
}

Expected<MarkedText> Runtime::marked_str(const Value& value) {
  if (const MarkedText* text = value.marked()) {
    DLLM_CHECK_OK(allocate(text->bytes.size()));
    return *text;
  }
  DLLM_TRY(std::string text, str(value));
  return value.has_content() ? MarkedText::content(std::move(text)) : MarkedText{std::move(text), {}};
}

ContentScope::ContentScope(Runtime& runtime, const Value& input, const Arguments& arguments)
    : ContentScope(runtime, input.has_content() || std::ranges::any_of(arguments.positional, &Value::has_content) ||
                                std::ranges::any_of(arguments.named,
                                                    [](const auto& named) { return named.second.has_content(); })) {}

Expected<SequencePtr> Runtime::iterate(const Value& value) {
  if (const SequencePtr* sequence = value.get<SequencePtr>()) {
    DLLM_CHECK_OK(step(static_cast<std::int64_t>((*sequence)->items.size())));
    return *sequence;
  }
  auto items = std::make_shared<Sequence>();
  if (const Mapping* mapping = value.mapping()) {
    DLLM_CHECK_OK(step(static_cast<std::int64_t>(mapping->entries.size())));
    for (const auto& [key, item] : mapping->entries) items->items.push_back(key);
    items->content = mapping->content;
  } else if (const std::string* text = value.text()) {
    for (std::size_t i = 0; i < text->size();) {
      DLLM_CHECK_OK(step());
      const Utf8Char c = utf8_at(*text, i);
      items->items.emplace_back(value.marked()->part(std::string_view(*text).substr(i, c.size)));
      i += c.size;
    }
    items->content = value.has_content();
  } else if (!value.undefined()) {
    return type_error(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return SequencePtr(std::move(items));
}

Namespace* Runtime::make_namespace() {
  namespaces_.push_back(std::make_unique<Namespace>());
  return namespaces_.back().get();
}

Macro* Runtime::make_macro(const Stmt* definition, ScopePtr scope) {
  macros_.push_back(std::make_unique<Macro>(Macro{definition, std::move(scope)}));
  return macros_.back().get();
}

LoopState* Runtime::make_loop(SequencePtr items) {
  loops_.push_back(std::make_unique<LoopState>(LoopState{std::move(items), 0}));
  return loops_.back().get();
}

Expected<ScopePtr> Runtime::make_scope(ScopePtr parent) {
  auto scope = std::make_shared<Scope>();
  scope->depth = parent ? parent->depth + 1 : 0;
  if (scope->depth > limits_.scope_depth) return limit_error("scopes are nested too deeply");
  scope->parent = std::move(parent);
  return scope;
}

Value undefined_value(std::string hint) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(hint))});
}

Expected<void> require_defined(const Value& value) {
  if (const Undefined* undefined = value.get<Undefined>()) return type_error(*undefined->hint);
  return {};
}

}  // namespace dllm::jinja
