#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// An object that somebody wrote, read key by key: one that is there and that nothing has read is an error, because a
/// typing mistake would change the meaning in silence. Formats derive from it: JSON files (json_object.h), TOML files,
/// requests. They say how a value is found, and what an error calls its place. A copy remembers its own keys.
class StrictObject {
 public:
  /// A value as its format has it. Integers beyond int64 are numbers.
  struct Other {
    std::string_view type;  ///< "a list"
  };
  using Value = std::variant<std::monostate, std::string, std::int64_t, double, bool, Other>;  ///< monostate: absent

  static constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

  virtual ~StrictObject() = default;

  /// Whether the key is there. Does not count as reading.
  bool contains(std::string_view key) const { return !std::holds_alternative<std::monostate>(value(key)); }

  // Each reads a required key. Errors: missing; of another type; out of range.
  Expected<std::string> text(std::string_view key);
  Expected<std::int64_t> integer(std::string_view key, std::int64_t least = kLeast, std::int64_t most = kMost);
  Expected<double> number(std::string_view key);  ///< an integer or another number
  Expected<bool> boolean(std::string_view key);
  Expected<std::vector<std::string>> texts(std::string_view key);
  Expected<std::vector<std::int64_t>> integers(std::string_view key, std::int64_t least = kLeast,
                                               std::int64_t most = kMost);

  // The same of a key that may be absent.
  Expected<std::optional<std::string>> optional_text(std::string_view key);
  Expected<std::optional<std::int64_t>> optional_integer(std::string_view key, std::int64_t least = kLeast,
                                                         std::int64_t most = kMost);
  Expected<std::optional<double>> optional_number(std::string_view key);
  Expected<std::optional<bool>> optional_boolean(std::string_view key);

  /// Counts a key as read that may be there and says nothing.
  void allow(std::string_view key) { read_.emplace(key); }
  /// Keys that are there and were not read, in the object's order.
  std::vector<std::string> unread() const;
  /// Errors: the first unread key, with the nearest of those that were read.
  Expected<void> finish() const;

  /// An error at a key of this object.
  virtual Error error(std::string_view key, std::string what, std::string hint = "") const = 0;
  /// A key's name in errors: its path from the root, where the format's places do not have it.
  virtual std::string path(std::string_view key) const { return std::string(key); }

 protected:
  StrictObject() = default;
  StrictObject(const StrictObject&) = default;
  StrictObject(StrictObject&&) = default;
  StrictObject& operator=(const StrictObject&) = default;
  StrictObject& operator=(StrictObject&&) = default;

  virtual Value value(std::string_view key) const = 0;
  /// Calls visit(value) for each value of a list until it returns false. Returns false if the value is no list.
  virtual bool visit_list(std::string_view key, const std::function<bool(Value)>& visit) const = 0;
  virtual std::vector<std::string> keys() const = 0;

  virtual Error wrong(std::string_view key, std::string_view found, std::string_view wanted) const;
  virtual Error missing(std::string_view key, std::string_view wanted) const;
  virtual Error unknown(std::string_view key, std::string hint) const;

 private:
  template <class T>
  Expected<std::optional<T>> read(std::string_view key, const std::string& wanted, auto convert);
  template <class T>
  Expected<T> required(std::string_view key, const std::string& wanted, Expected<std::optional<T>> found) const;
  template <class T>
  Expected<std::vector<T>> list(std::string_view key, const std::string& wanted, auto convert);

  std::set<std::string, std::less<>> read_;
};

}  // namespace dllm
