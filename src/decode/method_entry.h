#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/latency_table.h"
#include "decode/method_traits.h"
#include "decode/option_row.h"

namespace dllm {

/// What a method learns of the request besides its own options.
struct MethodContext {
  BlockOrigin origin = BlockOrigin::kPromptEnd;
  Position block_length = 32;
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine, borrowed; nullptr: unknown
  Position length = 0;                    ///< generated positions
  std::vector<TokenId> newlines{};        ///< tokens that are a line break
  bool compat = false;                    ///< upstream's behaviour where it differs from ours
};

/// A method of the registry, as option resolution sees it.
struct MethodDeclaration {
  MethodInfo info;
  /// Keys of common options and parts that do not apply to this method: setting one is an error.
  std::vector<std::string> unread;
  /// The complete set of options that are read, from those given. Errors: kUsage, with the option's flag.
  std::function<Expected<OptionMap>(const OptionMap& given, const ModelDesc&, const MethodContext&)> complete = {};
  /// Whether a model can be decoded by it; null: every model. Errors: kUsage; the place is the part's flag.
  std::function<Expected<void>(const ModelDesc&)> suits = {};
  /// Decoders: the window that the given options imply if none is chosen; empty: none. Null: options never imply one.
  std::function<std::string(const OptionMap& given)> implied_window = {};
  /// Null: none of them is true of it.
  std::function<MethodTraits(const OptionMap& complete)> traits = {};
  /// Whether it is the one of its part that such a model is decoded by if none is chosen, unless an earlier one in the
  /// registry is; null: never. `standard_words` say when: "for autoregressive models"; empty: always.
  std::function<bool(const ModelDesc&)> standard = {};
  std::string standard_words = {};

  /// nullptr: the method has no such option.
  const OptionInfo* option(std::string_view key) const;
};

/// ... with its factory. `make` takes given or complete options; absent ones have the struct's default.
template <class Object>
struct MethodEntry : MethodDeclaration {
  std::function<Expected<std::unique_ptr<Object>>(const OptionMap&, const MethodContext&)> make;

  MethodEntry&& alias(std::string name) && {
    info.aliases.push_back(std::move(name));
    return std::move(*this);
  }
  MethodEntry&& not_read(std::vector<std::string> keys) && {
    unread = std::move(keys);
    return std::move(*this);
  }
  MethodEntry&& only_for(std::function<Expected<void>(const ModelDesc&)> models) && {
    suits = std::move(models);
    return std::move(*this);
  }
  MethodEntry&& implies_window(std::function<std::string(const OptionMap&)> window) && {
    implied_window = std::move(window);
    return std::move(*this);
  }
  MethodEntry&& always(MethodTraits facts) && {
    traits = [facts](const OptionMap&) { return facts; };
    return std::move(*this);
  }
  /// Traits that depend on the method's options. `facts`: (const T&) -> MethodTraits, `rows`: of declare_method().
  template <class T, class Facts>
  MethodEntry&& depending_on(OptionRows<T> rows, Facts facts) &&;
  MethodEntry&& standard_for(std::string words, std::function<bool(const ModelDesc&)> models) && {
    standard = std::move(models);
    standard_words = std::move(words);
    return std::move(*this);
  }
};

/// "x has no option 'y'"
Error no_option(const MethodInfo& method, std::string_view key);

namespace detail {

template <class T>
Expected<T> store_options(const MethodInfo& method, const OptionRows<T>& rows, const OptionMap& given) {
  T options;
  for (const auto& [key, value] : given) {
    const OptionRow<T>* row = nullptr;
    for (const OptionRow<T>& one : rows)
      if (one.info.key == key) row = &one;
    if (row == nullptr) return no_option(method, key);
    auto fitting = fit_option(row->info, value);
    if (!fitting) return std::move(fitting).error();
    row->store(options, *fitting);
  }
  return options;
}

template <class T>
Expected<OptionMap> complete_options(const MethodInfo& method, const OptionRows<T>& rows, const OptionMap& given,
                                     const ModelDesc& desc, const MethodContext& context) {
  auto stored = store_options(method, rows, given);
  if (!stored) return std::move(stored).error();
  T options = *std::move(stored);
  for (const OptionRow<T>& row : rows)
    if (row.derive && !given.contains(row.info.key))
      if (const auto value = row.derive(options, desc, context)) row.store(options, *value);
  OptionMap complete;
  for (const OptionRow<T>& row : rows) {
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

}  // namespace detail

/// Options that do not fit have no traits: nothing can be made of them either.
template <class Object>
template <class T, class Facts>
MethodEntry<Object>&& MethodEntry<Object>::depending_on(OptionRows<T> rows, Facts facts) && {
  traits = [method = info, rows = std::move(rows), facts](const OptionMap& chosen) {
    const auto options = detail::store_options(method, rows, chosen);
    return options ? facts(*options) : MethodTraits();
  };
  return std::move(*this);
}

/// A registry entry. `make`: (const T&, const MethodContext&) -> std::unique_ptr of `Object` or a class derived from
/// it.
template <class Object, class T, class Make>
MethodEntry<Object> declare_method(std::string name, std::string meaning, OptionRows<T> rows, Make make) {
  MethodEntry<Object> entry;
  entry.info = {std::move(name), {}, std::move(meaning), {}};
  for (const OptionRow<T>& row : rows) entry.info.options.push_back(row.info);
  entry.complete = [info = entry.info, rows](const OptionMap& given, const ModelDesc& desc,
                                             const MethodContext& context) {
    return detail::complete_options(info, rows, given, desc, context);
  };
  entry.make = [info = entry.info, rows, make](const OptionMap& given,
                                               const MethodContext& context) -> Expected<std::unique_ptr<Object>> {
    auto options = detail::store_options(info, rows, given);
    if (!options) return std::move(options).error();
    return std::unique_ptr<Object>(make(*options, context));
  };
  return entry;
}

/// The option struct of methods without options.
struct NoOptions {};

}  // namespace dllm
