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

/// Limits on the cost of one rendering, whatever the template and the messages. They bound time and memory; no
/// conversation that a model could read comes near them, even if the template compares every message with every other.
struct Limits {
  std::int64_t steps = 0;                         ///< see ChatTemplate::kMaxSteps
  std::size_t output = std::size_t{8} << 20;      ///< bytes of output, and of any single intermediate text
  std::size_t allocation = std::size_t{1} << 30;  ///< bytes of all intermediate texts together
  int depth = 250;                                ///< nested evaluations, including macro calls
  int scope_depth = 200;                          ///< scopes that stored macros can chain
  std::int64_t range = 100'000;                   ///< items of range(), as in Jinja's sandbox
};

/// Variables by name. A frame has one to ten, for which a list is faster than a hash table; the index is for templates
/// that were made to have thousands.
class Variables {
 public:
  const Value* find(std::string_view name) const {
    const std::size_t place = place_of(name);
    return place < list_.size() ? &list_[place].second : nullptr;
  }
  void insert_or_assign(const std::string& name, Value value) {
    if (const std::size_t place = place_of(name); place < list_.size()) {
      list_[place].second = std::move(value);
      return;
    }
    if (list_.empty()) list_.reserve(4);
    list_.emplace_back(name, std::move(value));
    if (list_.size() <= kMostWithoutIndex) return;
    for (std::size_t place = index_.size(); place < list_.size(); ++place) index_.emplace(list_[place].first, place);
  }

 private:
  static constexpr std::size_t kMostWithoutIndex = 16;

  /// list_.size(): there is none.
  std::size_t place_of(std::string_view name) const {
    if (!index_.empty()) {
      const auto found = index_.find(std::string(name));
      return found == index_.end() ? list_.size() : found->second;
    }
    std::size_t place = 0;
    while (place < list_.size() && list_[place].first != name) ++place;
    return place;
  }

  std::vector<std::pair<std::string, Value>> list_;
  std::unordered_map<std::string, std::size_t> index_;  ///< of all of list_, or empty
};

/// Variables of one frame. Frames of macros outlive their call, because a macro defined inside refers to its frame.
struct Scope {
  std::shared_ptr<Scope> parent;
  Variables variables;
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
  /// Charges the steps of reading `value` so many times if it is a long text.
  Expected<void> scan(const Value& value, int times = 1);
  /// Call before creating a text of `bytes`.
  Expected<void> allocate(std::size_t bytes);

  /// Creates a text and charges its bytes.
  Expected<Value> text(MarkedText text, bool safe = false);
  Expected<Value> text(std::string markup) { return text(MarkedText{std::move(markup), {}}); }
  /// str(), charged.
  Expected<MarkedText> str(const Value& value);

  /// The items that Python's iteration yields: elements, keys, characters. Error if it is not iterable.
  Expected<SequencePtr> iterate(const Value& value);

  Namespace* make_namespace();
  Macro* make_macro(const Stmt* definition, ScopePtr scope);
  LoopState* make_loop(SequencePtr items);
  Expected<ScopePtr> make_scope(ScopePtr parent);

 private:
  Limits limits_;
  std::int64_t steps_ = 0;
  std::size_t allocated_ = 0;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<LoopState>> loops_;
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

/// Python's ==, which counts every pair of values that it visits: nested lists that share their parts have
/// exponentially many.
Expected<bool> equal(Runtime& runtime, const Value& a, const Value& b);
/// -1, 0, 1; an error where Python raises a TypeError.
Expected<int> compare(Runtime& runtime, const Value& a, const Value& b);
/// The stable order of `keys`; an error as in compare().
Expected<std::vector<std::size_t>> sort_order(Runtime& runtime, const std::vector<Value>& keys, bool reverse);
/// The index of the first item that equals `value`; items.size() if none.
Expected<std::size_t> index_of(Runtime& runtime, const std::vector<Value>& items, const Value& value);
/// mapping[key]; nullptr if there is no such key.
Expected<const Value*> find_entry(Runtime& runtime, const Mapping& mapping, const Value& key);
/// mapping[key] = value
Expected<void> set_entry(Runtime& runtime, Mapping& mapping, Value key, Value value);

/// markupsafe.escape(): safe texts unchanged, others with & < > ' " escaped.
Expected<MarkedText> escaped(Runtime& runtime, const Value& value);

bool is_method(const Value& object, std::string_view name);
Expected<Value> call_method(Runtime& runtime, const Value& object, const std::string& name, const Arguments& arguments);

bool is_global(std::string_view name);
Expected<Value> call_global(Runtime& runtime, const std::string& name, const Arguments& arguments);

Expected<Value> apply_filter(Runtime& runtime, const std::string& name, const Value& input, const Arguments& arguments);
Expected<bool> apply_test(Runtime& runtime, const std::string& name, const Value& input, const Arguments& arguments);

}  // namespace dllm::jinja
