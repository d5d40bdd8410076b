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

class Runtime;
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

/// A str. `safe`: markupsafe's Markup, which escapes what is added to it.
struct Str : MarkedText {
  bool safe = false;
};
using Text = std::shared_ptr<const Str>;

enum class SequenceKind : std::uint8_t {
  kList,
  kTuple,
  kGenerator,  ///< the result of filters such as map(): iterates like a list, but is true even if empty, has no length
};
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;
};
using SequencePtr = std::shared_ptr<const Sequence>;

struct Mapping {
  std::vector<std::pair<Value, Value>> entries;  ///< in insertion order, keys unique
  int depth = 1;

  const Value* find_text(std::string_view key) const;
  /// Replaces or appends, like a dict.
  void set_text(const std::string& key, Value value);
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
  Value(std::string v) : Value(MarkedText{std::move(v), {}}) {}
  Value(MarkedText v, bool safe = false) : data_(std::make_shared<const Str>(Str{std::move(v), safe})) {}
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
  /// Whether it is a text that escapes what is added to it.
  bool safe() const {
    const Text* text = get<Text>();
    return text != nullptr && (*text)->safe;
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

/// Python's str() and repr(). Texts keep their marks; what is written around them is markup. Errors: output above
/// `limit` bytes.
Expected<MarkedText> to_text(const Value& value, std::size_t limit);
Expected<MarkedText> to_repr(const Value& value, std::size_t limit);

struct JsonStyle {
  int indent = -1;  ///< -1: one line
  MarkedText item_separator{", ", {}}, key_separator{": ", {}};
  bool sort_keys = false;
  bool ascii = false;
};
/// Python's json.dumps(), with marks as in to_text(). Errors: values that are not JSON; the output limit.
Expected<MarkedText> to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

std::string format_double(double value);

/// An error without a place, to which the interpreter adds line and column.
Error type_error(std::string what);
Error limit_error(std::string what);

}  // namespace dllm::jinja
