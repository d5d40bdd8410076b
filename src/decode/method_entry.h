#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
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

/// Whether this is the method's name or an alias of it; underscores equal hyphens.
bool is_called(const MethodInfo& method, std::string_view name);
/// A usage error that lists the known names, or the nearest ones.
Error unknown_method(std::string_view name, const std::vector<std::string>& known);

template <class Entries>
std::vector<std::string> method_names(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.info.name);
  return names;
}

/// The entry with that name or alias. Errors: kUsage.
template <class Entries>
auto find_method(const Entries& entries, std::string_view name) -> Expected<typename Entries::const_pointer> {
  for (const auto& entry : entries)
    if (is_called(entry.info, name)) return &entry;
  return unknown_method(name, method_names(entries));
}

/// What is true of a method with these complete options; of an unknown one, nothing. Constructs no method.
template <class Object>
MethodTraits traits_of(const std::vector<MethodEntry<Object>>& entries, const MethodChoice& choice) {
  const auto entry = find_method(entries, choice.name);
  return entry && (*entry)->traits ? (*entry)->traits(choice.options) : MethodTraits();
}

/// Options that do not fit have no traits: nothing can be made of them either.
template <class Object>
template <class T, class Facts>
MethodEntry<Object>&& MethodEntry<Object>::depending_on(OptionRows<T> rows, Facts facts) && {
  traits = [set = OptionSet<T>(info.name, std::move(rows)), facts](const OptionMap& chosen) {
    const auto options = set.store(chosen);
    return options ? facts(*options) : MethodTraits();
  };
  return std::move(*this);
}

/// A registry entry. `make`: (const T&, const MethodContext&) -> std::unique_ptr of `Object` or a class derived from
/// it.
template <class Object, class T, class Make>
MethodEntry<Object> declare_method(std::string name, std::string meaning, OptionRows<T> rows, Make make) {
  const OptionSet<T> options(name, std::move(rows));
  MethodEntry<Object> entry;
  entry.info = {std::move(name), {}, std::move(meaning), options.infos()};
  entry.complete = std::bind_front(&OptionSet<T>::complete, options);
  entry.make = options.template maker<Object>(std::move(make));
  return entry;
}

/// The option struct of methods without options.
struct NoOptions {};

}  // namespace dllm
