#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/try.h"
#include "text/utf8.h"

namespace dllm::jinja {

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    if (const Value* found = scope->variables.find(name)) return found;
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

Expected<void> Runtime::scan(const Value& value, int times) {
  // Decoding that many characters takes as long as a step: 0.1 microseconds.
  constexpr std::size_t kBytesPerStep = 16;
  const std::string* text = value.text();
  return step(text != nullptr ? times * static_cast<std::int64_t>(text->size() / kBytesPerStep) : 0);
}

Expected<void> Runtime::allocate(std::size_t bytes) {
  if (bytes > limits_.output) return limit_error(fmt::format("a text grows beyond {} bytes", limits_.output));
  allocated_ += bytes;
  if (allocated_ > limits_.allocation) {
    return limit_error(fmt::format("the template makes more than {} bytes of texts", limits_.allocation));
  }
  return {};
}

Expected<Value> Runtime::text(MarkedText text, bool safe) {
  DLLM_CHECK_OK(allocate(text.bytes.size()));
  return Value(std::move(text), safe);
}

Expected<MarkedText> Runtime::str(const Value& value) {
  DLLM_TRY(MarkedText text, to_text(value, limits_.output));
  DLLM_CHECK_OK(allocate(text.bytes.size()));
  return text;
}

Expected<SequencePtr> Runtime::iterate(const Value& value) {
  if (const SequencePtr* sequence = value.get<SequencePtr>()) {
    DLLM_CHECK_OK(step(static_cast<std::int64_t>((*sequence)->items.size())));
    return *sequence;
  }
  auto items = std::make_shared<Sequence>();
  if (const Mapping* mapping = value.mapping()) {
    DLLM_CHECK_OK(step(static_cast<std::int64_t>(mapping->entries.size())));
    for (const auto& [key, item] : mapping->entries) items->items.push_back(key);
  } else if (const std::string* text = value.text()) {
    for (std::size_t i = 0; i < text->size();) {
      DLLM_CHECK_OK(step());
      const Utf8Char c = utf8_at(*text, i);
      items->items.emplace_back(value.marked()->part(std::string_view(*text).substr(i, c.size)));
      i += c.size;
    }
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
