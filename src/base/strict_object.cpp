#include "base/strict_object.h"

#include <fmt/format.h>

#include <utility>

#include "base/nearest.h"
#include "base/quote_name.h"
#include "base/try.h"

namespace dllm {
namespace {

using Value = StrictObject::Value;

constexpr const char* kText = "a string";
constexpr const char* kNumber = "a number";
constexpr const char* kBoolean = "true or false";

std::string integer_from(std::int64_t least, std::int64_t most) {
  if (least == StrictObject::kLeast && most == StrictObject::kMost) return "an integer";
  return fmt::format("an integer from {} to {}", least, most);
}

/// What a value is called that is no T, or a number out of range.
std::string name_of(const Value& value, bool by_value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value))
    return by_value ? std::to_string(*integer) : "an integer";
  if (std::holds_alternative<std::string>(value)) return kText;
  if (std::holds_alternative<double>(value)) return kNumber;
  if (std::holds_alternative<bool>(value)) return kBoolean;
  return std::string(std::get<StrictObject::Other>(value).type);
}

std::optional<std::string> as_text(Value& value) {
  auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? std::optional(std::move(*text)) : std::nullopt;
}

auto as_integer(std::int64_t least, std::int64_t most) {
  return [least, most](const Value& value) -> std::optional<std::int64_t> {
    const auto* integer = std::get_if<std::int64_t>(&value);
    return integer != nullptr && *integer >= least && *integer <= most ? std::optional(*integer) : std::nullopt;
  };
}

std::optional<double> as_number(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  const auto* number = std::get_if<double>(&value);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

std::optional<bool> as_boolean(const Value& value) {
  const auto* flag = std::get_if<bool>(&value);
  return flag != nullptr ? std::optional(*flag) : std::nullopt;
}

}  // namespace

template <class T>
Expected<std::optional<T>> StrictObject::read(std::string_view key, const std::string& wanted, auto convert) {
  allow(key);
  Value found = value(key);
  if (std::holds_alternative<std::monostate>(found)) return std::optional<T>();
  if (std::optional<T> converted = convert(found)) return converted;
  return wrong(key, name_of(found, wanted.find(" from ") != std::string::npos), wanted);
}

template <class T>
Expected<T> StrictObject::required(std::string_view key, const std::string& wanted,
                                   Expected<std::optional<T>> found) const {
  if (!found) return std::move(found).error();
  if (*found) return **std::move(found);
  return missing(key, wanted);
}

template <class T>
Expected<std::vector<T>> StrictObject::list(std::string_view key, const std::string& wanted, auto convert) {
  allow(key);
  const std::string whole = "a list, each " + wanted;
  if (!contains(key)) return missing(key, whole);
  std::vector<T> result;
  std::string other;  // the first value that is no T
  const bool is_list = visit_list(key, [&](Value one) {
    std::optional<T> converted = convert(one);
    if (converted)
      result.push_back(*std::move(converted));
    else
      other = name_of(one, true);
    return other.empty();
  });
  if (!is_list) return wrong(key, name_of(value(key), false), whole);
  if (!other.empty()) return wrong(fmt::format("{}[{}]", key, result.size()), other, wanted);
  return result;
}

Expected<std::optional<std::string>> StrictObject::optional_text(std::string_view key) {
  return read<std::string>(key, kText, as_text);
}
Expected<std::optional<std::int64_t>> StrictObject::optional_integer(std::string_view key, std::int64_t least,
                                                                     std::int64_t most) {
  return read<std::int64_t>(key, integer_from(least, most), as_integer(least, most));
}
Expected<std::optional<double>> StrictObject::optional_number(std::string_view key) {
  return read<double>(key, kNumber, as_number);
}
Expected<std::optional<bool>> StrictObject::optional_boolean(std::string_view key) {
  return read<bool>(key, kBoolean, as_boolean);
}

Expected<std::string> StrictObject::text(std::string_view key) { return required(key, kText, optional_text(key)); }
Expected<std::int64_t> StrictObject::integer(std::string_view key, std::int64_t least, std::int64_t most) {
  return required(key, integer_from(least, most), optional_integer(key, least, most));
}
Expected<double> StrictObject::number(std::string_view key) { return required(key, kNumber, optional_number(key)); }
Expected<bool> StrictObject::boolean(std::string_view key) { return required(key, kBoolean, optional_boolean(key)); }

Expected<std::vector<std::string>> StrictObject::texts(std::string_view key) {
  return list<std::string>(key, kText, as_text);
}
Expected<std::vector<std::int64_t>> StrictObject::integers(std::string_view key, std::int64_t least,
                                                           std::int64_t most) {
  return list<std::int64_t>(key, integer_from(least, most), as_integer(least, most));
}

std::vector<std::string> StrictObject::unread() const {
  std::vector<std::string> names;
  for (std::string& key : keys())
    if (!read_.contains(key)) names.push_back(std::move(key));
  return names;
}

Expected<void> StrictObject::finish() const {
  const std::vector<std::string> names = unread();
  if (names.empty()) return {};
  return unknown(names.front(), choice_hint(names.front(), {read_.begin(), read_.end()}));
}

Error StrictObject::wrong(std::string_view key, std::string_view found, std::string_view wanted) const {
  return error(key, fmt::format("'{}' is {}", path(key), found), fmt::format("it must be {}", wanted));
}

Error StrictObject::missing(std::string_view key, std::string_view wanted) const {
  return error(key, fmt::format("there is no '{}'", path(key)), fmt::format("it is {}", wanted));
}

Error StrictObject::unknown(std::string_view key, std::string hint) const {
  return error(key, "unknown key " + quote_name(path(key)), std::move(hint));
}

}  // namespace dllm
