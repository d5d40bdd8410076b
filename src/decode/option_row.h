#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dllm/options.h"
#include "model/model_desc.h"

/// How a method declares its own options: one OptionRow per member of its struct.
///
///   struct CreditOptions {
///     double credit_alpha = 0.7;
///   };
///   const OptionRows<CreditOptions> kRows = {
///       option("credit_alpha", &CreditOptions::credit_alpha, 0, 1e3, "", "weight of the gathered credit"),
///   };
///
/// The default is the member's. A key is unique within a part of the decoding: methods that declare the same key give
/// it the same meaning, type, range and flags (decode/registry_test.cpp).
namespace dllm {

struct MethodContext;

inline constexpr double kMostPositions = 1 << 20;  // longer than any model's canvas; sums stay far from overflow
inline constexpr double kMostInteger = std::numeric_limits<std::int32_t>::max();

/// Converts `value` to the type that `info` declares: integers become numbers where needed, underscores in choices
/// become hyphens. Errors: kUsage with the option's flag (type, range, choices, not finite).
Expected<OptionValue> fit_option(const OptionInfo& info, OptionValue value);
/// The same from text, the form of flags and environment variables.
Expected<OptionValue> parse_option(const OptionInfo& info, std::string_view text);
/// An error about an option, with its flag as the place.
Error option_error(const OptionInfo& info, std::string what, std::string hint = "");

namespace detail {

template <class V>
struct IsOptional : std::false_type {};
template <class V>
struct IsOptional<std::optional<V>> : std::true_type {};

template <class V>
constexpr OptionType option_type() {
  if constexpr (IsOptional<V>::value) return option_type<typename V::value_type>();
  if constexpr (std::is_same_v<V, bool>) return OptionType::kBool;
  if constexpr (std::is_same_v<V, std::uint64_t>) return OptionType::kUnsigned;
  if constexpr (std::is_same_v<V, std::int32_t>) return OptionType::kInteger;
  if constexpr (std::is_same_v<V, double>) return OptionType::kNumber;
  return OptionType::kText;
}

template <class V>
OptionValue to_value(const V& value) {
  if constexpr (std::is_same_v<V, std::int32_t>)
    return std::int64_t{value};
  else
    return value;
}

template <class V>
V from_value(const OptionValue& value) {
  if constexpr (std::is_same_v<V, std::int32_t>)
    return static_cast<V>(std::get<std::int64_t>(value));
  else
    return std::get<V>(value);
}

template <class V>
std::optional<OptionValue> load_member(const V& member) {
  if constexpr (IsOptional<V>::value) {
    if (!member) return std::nullopt;
    return to_value(*member);
  } else {
    return to_value(member);
  }
}

template <class V>
void store_member(V& member, const OptionValue& value) {
  if constexpr (IsOptional<V>::value)
    member = from_value<typename V::value_type>(value);
  else
    member = from_value<V>(value);
}

std::string flag_of(std::string_view key);

}  // namespace detail

/// One option of a method's struct `T`.
template <class T>
struct OptionRow {
  using Derive = std::function<std::optional<OptionValue>(const T&, const ModelDesc&, const MethodContext&)>;
  using Check = std::function<Expected<void>(const T&, const ModelDesc&)>;

  OptionInfo info;
  std::function<void(T&, const OptionValue&)> store;         ///< a value that fit_option() has accepted
  std::function<std::optional<OptionValue>(const T&)> load;  ///< nullopt: absent
  std::function<bool(const T&)> read = {};                   ///< whether the option is read; null: always
  Derive derive = {};                                        ///< the default if none is given; null: the member's
  Check check = {};                                          ///< against the other options and the model; null: none

  OptionRow() = default;
  /// Rows of a base struct also work for structs derived from it.
  template <class Base>
    requires std::is_base_of_v<Base, T> && (!std::is_same_v<Base, T>)
  OptionRow(const OptionRow<Base>& base)
      : info(base.info), store(base.store), load(base.load), read(base.read), derive(base.derive), check(base.check) {}

  OptionRow flag(std::string name) && {
    info.flags.push_back(std::move(name));
    return std::move(*this);
  }
  /// The option is read only if `holds`; `words` say when: "with --refresh-path second".
  OptionRow only(std::string words, std::function<bool(const T&)> holds) && {
    info.condition = std::move(words);
    read = std::move(holds);
    return std::move(*this);
  }
  /// What an absent option means, in words, and how to compute it (null: absence has its own meaning).
  OptionRow otherwise(std::string words, Derive value = {}) && {
    info.standard_text = std::move(words);
    derive = std::move(value);
    return std::move(*this);
  }
  /// Errors of `verify` get the option's flag as their place.
  OptionRow checked(Check verify) && {
    check = std::move(verify);
    return std::move(*this);
  }
};

template <class T>
using OptionRows = std::vector<OptionRow<T>>;

/// Concatenates lists of rows, each of `T` or of a base of it.
template <class T, class... Lists>
OptionRows<T> join_rows(const Lists&... lists) {
  OptionRows<T> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

/// `rows`, which are read only if `holds` and their own conditions are true; `words`: see OptionRow::only().
template <class T>
OptionRows<T> rows_only(OptionRows<T> rows, const std::string& words, const std::function<bool(const T&)>& holds) {
  for (OptionRow<T>& row : rows) {
    const std::string own = row.info.condition;
    const std::function<bool(const T&)> read = row.read;
    row = std::move(row).only(own.empty() ? words : words + ", " + own,
                              [holds, read](const T& o) { return holds(o) && (!read || read(o)); });
  }
  return rows;
}

/// A switch or a text.
template <class T, class V>
OptionRow<T> option(std::string key, V T::* member, std::string meaning) {
  OptionRow<T> row;
  row.info.flags = {detail::flag_of(key)};
  row.info.key = std::move(key);
  row.info.type = detail::option_type<V>();
  row.info.meaning = std::move(meaning);
  row.store = [member](T& options, const OptionValue& value) { detail::store_member(options.*member, value); };
  row.load = [member](const T& options) { return detail::load_member(options.*member); };
  row.info.standard = row.load(T{});
  return row;
}

/// A number within [minimum, maximum].
template <class T, class V>
OptionRow<T> option(std::string key, V T::* member, double minimum, double maximum, std::string unit,
                    std::string meaning) {
  OptionRow<T> row = option(std::move(key), member, std::move(meaning));
  row.info.minimum = minimum;
  row.info.maximum = maximum;
  row.info.unit = std::move(unit);
  return row;
}

/// One of several names, each standing for a value of `V`.
template <class T, class V>
OptionRow<T> option(std::string key, V T::* member, std::vector<std::pair<std::string, V>> choices,
                    std::string meaning) {
  OptionRow<T> row;
  row.info.flags = {detail::flag_of(key)};
  row.info.key = std::move(key);
  row.info.type = OptionType::kChoice;
  row.info.meaning = std::move(meaning);
  for (const auto& choice : choices) row.info.choices.push_back(choice.first);
  row.store = [member, choices](T& options, const OptionValue& value) {
    for (const auto& [name, meant] : choices)
      if (name == std::get<std::string>(value)) options.*member = meant;
  };
  row.load = [member, choices](const T& options) -> std::optional<OptionValue> {
    for (const auto& [name, meant] : choices)
      if (meant == options.*member) return name;
    return std::nullopt;
  };
  row.info.standard = row.load(T{});
  return row;
}

/// "x has no option 'y'"
Error no_option(std::string_view method, std::string_view key);

/// The options of one method, by their rows: from values to its struct and back.
template <class T>
class OptionSet {
 public:
  OptionSet(std::string method, OptionRows<T> rows) : method_(std::move(method)), rows_(std::move(rows)) {}

  std::vector<OptionInfo> infos() const {
    std::vector<OptionInfo> infos;
    for (const OptionRow<T>& row : rows_) infos.push_back(row.info);
    return infos;
  }

  /// What is absent has the struct's default. Errors: kUsage, with the option's flag.
  Expected<T> store(const OptionMap& given) const {
    T options;
    for (const auto& [key, value] : given) {
      const auto row =
          std::ranges::find(rows_, key, [](const OptionRow<T>& one) -> const std::string& { return one.info.key; });
      if (row == rows_.end()) return no_option(method_, key);
      auto fitting = fit_option(row->info, value);
      if (!fitting) return std::move(fitting).error();
      row->store(options, *fitting);
    }
    return options;
  }

  /// All that are read, with the values that follow from those given. Errors: kUsage, with the option's flag.
  Expected<OptionMap> complete(const OptionMap& given, const ModelDesc& desc, const MethodContext& context) const {
    auto stored = store(given);
    if (!stored) return std::move(stored).error();
    T options = *std::move(stored);
    for (const OptionRow<T>& row : rows_)
      if (row.derive && !given.contains(row.info.key))
        if (const auto value = row.derive(options, desc, context)) row.store(options, *value);
    OptionMap complete;
    for (const OptionRow<T>& row : rows_) {
      const bool read = !row.read || row.read(options);
      if (!read && given.contains(row.info.key)) return option_error(row.info, "is read only " + row.info.condition);
      if (!read) continue;
      if (row.check)
        if (auto fine = row.check(options, desc); !fine) {
          const Error& error = fine.error();
          return option_error(row.info, error.what, error.hint);
        }
      if (auto value = row.load(options)) complete.emplace(row.info.key, *std::move(value));
    }
    return complete;
  }

  /// What makes an `Object` from given or complete options. `make`: see declare_method().
  template <class Object, class Make>
  auto maker(Make make) const {
    return
        [set = *this, make](const OptionMap& given, const MethodContext& context) -> Expected<std::unique_ptr<Object>> {
          auto options = set.store(given);
          if (!options) return std::move(options).error();
          return std::unique_ptr<Object>(make(*options, context));
        };
  }

 private:
  std::string method_;
  OptionRows<T> rows_;
};

}  // namespace dllm
