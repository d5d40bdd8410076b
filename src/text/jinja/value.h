#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "dllm/error.h"
#include "text/marked_text.h"

/// The run-time values of chat templates: Python's semantics as far as Jinja templates can observe them.
namespace dllm::jinja {

class Value;
struct Macro;      // jinja_runtime.h
struct LoopState;  // jinja_runtime.h
struct Namespace;  // jinja_runtime.h

/// The result of reading an unknown variable or key. Renders as "", is false and iterates over nothing; any other use
/// is an error with its name.
struct Undefined {
  std::shared_ptr<const std::string> hint;  ///< "'x' is undefined"
};
struct None {};

using Text = std::shared_ptr<const MarkedText>;

enum class SequenceKind : std::uint8_t {
  kList,
  kTuple,
  kGenerator,  ///< the result of filters such as map(): iterates like a list, but is true even if empty, has no length
};
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;
  bool content = false;  ///< at least one text in it has content
};
using SequencePtr = std::shared_ptr<const Sequence>;

struct Mapping {
  std::vector<std::pair<Value, Value>> entries;  ///< in insertion order, keys unique
  int depth = 1;
  bool content = false;  ///< at least one text in it has content

  const Value* find(const Value& key) const;
  const Value* find_text(std::string_view key) const;
  /// Replaces or appends, like a dict.
  void set(Value key, Value value);
};
using MappingPtr = std::shared_ptr<const Mapping>;

/// A global function (empty `self`) or a method of `self`, by name.
struct Bound;
using BoundPtr = std::shared_ptr<const Bound>;

/// Immutable and cheap to copy. Containers may nest kMaxDepth deep, so that recursion over them, including their
/// destruction, is bounded; namespaces, macros and loops are owned by the Runtime and do not count.
class Value {
 public:
  static constexpr int kMaxDepth = 100;

  Value() : data_(None{}) {}
  Value(Undefined v) : data_(std::move(v)) {}
  Value(None v) : data_(v) {}
  Value(bool v) : data_(v) {}
  Value(std::int64_t v) : data_(v) {}
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::make_shared<const MarkedText>(MarkedText{std::move(v), {}})) {}
  Value(MarkedText v) : data_(std::make_shared<const MarkedText>(std::move(v))) {}
  Value(const char*) = delete;  // would become a bool
  Value(SequencePtr v) : data_(std::move(v)) {}
  Value(MappingPtr v) : data_(std::move(v)) {}
  Value(BoundPtr v) : data_(std::move(v)) {}
  Value(Namespace* v) : data_(v) {}
  Value(const Macro* v) : data_(v) {}
  Value(const LoopState* v) : data_(v) {}

  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }

  const std::string* text() const {
    const Text* text = get<Text>();
    return text != nullptr ? &(*text)->bytes : nullptr;
  }
  /// text() with its marks.
  const MarkedText* marked() const {
    const Text* text = get<Text>();
    return text != nullptr ? text->get() : nullptr;
  }
  const Sequence* sequence() const {
    const SequencePtr* sequence = get<SequencePtr>();
    return sequence != nullptr ? sequence->get() : nullptr;
  }
  const Mapping* mapping() const {
    const MappingPtr* mapping = get<MappingPtr>();
    return mapping != nullptr ? mapping->get() : nullptr;
  }
  bool undefined() const { return is<Undefined>(); }
  bool none() const { return is<None>(); }
  bool integer_like() const { return is<bool>() || is<std::int64_t>(); }
  bool number() const { return integer_like() || is<double>(); }

  /// Precondition: integer_like() / number().
  std::int64_t as_integer() const;
  double as_double() const;

  bool truthy() const;
  /// Whether some text in it is content. Always true for namespaces and loops, whose values change.
  bool has_content() const;
  int depth() const;
  /// Python's name of the type, for messages.
  std::string_view type_name() const;

 private:
  std::variant<None, Undefined, bool, std::int64_t, double, Text, SequencePtr, MappingPtr, BoundPtr, Namespace*,
               const Macro*, const LoopState*>
      data_;
};

struct Bound {
  Value self;
  std::string name;
};

/// Fails (kResource) if nesting would exceed Value::kMaxDepth.
Expected<Value> make_sequence(std::vector<Value> items, SequenceKind kind = SequenceKind::kList);
Expected<Value> make_mapping(Mapping mapping);
/// `content`: all texts are content, except roles that are plain words: templates build markup from those.
Expected<Value> from_json(const nlohmann::ordered_json& json, bool content, int depth = 0);

bool equal(const Value& a, const Value& b);
/// -1, 0, 1; an error where Python raises a TypeError.
Expected<int> compare(const Value& a, const Value& b);

/// The stable order of `keys`; an error as in compare().
Expected<std::vector<std::size_t>> sort_order(const std::vector<Value>& keys, bool reverse);

/// Python's str() and repr(). Errors: output above `limit` bytes.
Expected<std::string> to_text(const Value& value, std::size_t limit);
Expected<std::string> to_repr(const Value& value, std::size_t limit);

struct JsonStyle {
  int indent = -1;  ///< -1: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
/// Python's json.dumps(). Errors: values that are not JSON; output above `limit` bytes.
Expected<std::string> to_json(const Value& value, const JsonStyle& style, std::size_t limit);

std::string format_double(double value);

/// An error without a place, to which the interpreter adds line and column.
Error type_error(std::string what);
Error limit_error(std::string what);

}  // namespace dllm::jinja
