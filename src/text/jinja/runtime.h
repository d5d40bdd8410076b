#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dllm/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace dllm::jinja {

/// Limits on the cost of one rendering, whatever the template and the messages.
struct Limits {
  std::int64_t steps = 1'000'000;                   ///< nodes evaluated, items filtered
  std::size_t output = std::size_t{16} << 20;       ///< bytes of output, and of any single intermediate text
  std::size_t allocation = std::size_t{256} << 20;  ///< bytes of all intermediate texts together
  int depth = 250;                                  ///< nested evaluations, including macro calls
  int scope_depth = 200;                            ///< scopes that stored macros can chain
  std::int64_t range = 100'000;                     ///< items of range(), as in Jinja's sandbox
};

/// Variables of one frame. Frames of macros outlive their call, because a macro defined inside refers to its frame.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::unordered_map<std::string, Value> variables;
  int depth = 0;

  const Value* find(const std::string& name) const;
};
using ScopePtr = std::shared_ptr<Scope>;

/// `namespace(...)`: the only mutable value in templates.
struct Namespace {
  Mapping attributes;
};

/// A macro, or the body of a call block.
struct Macro {
  const Stmt* definition = nullptr;
  ScopePtr scope;  ///< where it was defined
};

/// The variable `loop`.
struct LoopState {
  SequencePtr items;
  std::size_t index = 0;
};

/// Arguments of a call, filter or test, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `index` or called `name`; nullptr if absent.
  const Value* find(std::size_t index, std::string_view name) const;
};

/// The state of one rendering: budgets, and the objects that values refer to, which may form cycles and so live until
/// its end. Not thread-safe; one per rendering.
class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Limits& limits() const { return limits_; }

  Expected<void> step(std::int64_t count = 1);
  /// Charges the steps of reading `value` if it is a long text.
  Expected<void> scan(const Value& value);
  /// Call before creating a text of `bytes`.
  Expected<void> allocate(std::size_t bytes);

  /// Creates a text and charges its bytes. Within a ContentScope all of it is content: the rule for operations that do
  /// not track where bytes come from.
  Expected<Value> text(std::string bytes);
  Expected<Value> text(MarkedText text);
  /// The same for bytes already charged by allocate().
  Value charged(std::string bytes) const;
  Expected<std::string> str(const Value& value);
  Expected<MarkedText> marked_str(const Value& value);

  /// The items that Python's iteration yields: elements, keys, characters. Error if it is not iterable.
  Expected<SequencePtr> iterate(const Value& value);

  Namespace* make_namespace();
  Macro* make_macro(const Stmt* definition, ScopePtr scope);
  LoopState* make_loop(SequencePtr items);
  Expected<ScopePtr> make_scope(ScopePtr parent);

 private:
  friend class ContentScope;
  Limits limits_;
  bool content_ = false;
  std::int64_t steps_ = 0;
  std::size_t allocated_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<LoopState>> loops_;
};

/// Active while a filter, method or operator processes its operands: texts that it creates are content if one of these
/// has any (`content`). Operations that can be more precise pass a marked text to Runtime::text().
class ContentScope {
 public:
  ContentScope(Runtime& runtime, bool content) : runtime_(runtime), outer_(runtime.content_) {
    runtime.content_ = content;
  }
  ContentScope(Runtime& runtime, const Value& input, const Arguments& arguments);
  ~ContentScope() { runtime_.content_ = outer_; }
  ContentScope(const ContentScope&) = delete;
  ContentScope& operator=(const ContentScope&) = delete;

 private:
  Runtime& runtime_;
  bool outer_;
};

Value undefined_value(std::string hint);

/// An error with the variable's name if `value` is undefined.
Expected<void> require_defined(const Value& value);

/// object.name and object[key], without methods: Undefined if absent; an error on Undefined itself.
Expected<Value> get_attribute(Runtime& runtime, const Value& object, const std::string& name);
Expected<Value> get_item(Runtime& runtime, const Value& object, const Value& key);
Expected<Value> get_slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop,
                          const Value& step);

/// op: + - * / // % **
Expected<Value> binary(Runtime& runtime, const std::string& op, const Value& a, const Value& b);
/// op: == != < <= > >= in, not in
Expected<bool> relation(Runtime& runtime, const std::string& op, const Value& a, const Value& b);
Expected<Value> negate(const Value& value);

bool is_method(const Value& object, std::string_view name);
Expected<Value> call_method(Runtime& runtime, const Value& object, const std::string& name, const Arguments& arguments);

bool is_global(std::string_view name);
Expected<Value> call_global(Runtime& runtime, const std::string& name, const Arguments& arguments);

Expected<Value> apply_filter(Runtime& runtime, const std::string& name, const Value& input, const Arguments& arguments);
Expected<bool> apply_test(Runtime& runtime, const std::string& name, const Value& input, const Arguments& arguments);

}  // namespace dllm::jinja
