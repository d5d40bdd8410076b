#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "decode/registry.h"

namespace dllm::test {

/// Those of `options` that the method has: for tests that give several methods the same. Each must be some method's.
template <class Entries>
OptionMap fitting(const Entries& entries, const std::string& name, OptionMap options) {
  for (const auto& [key, value] : options)
    EXPECT_TRUE(std::ranges::any_of(entries, [&](const auto& one) { return one.option(key) != nullptr; })) << key;
  const auto entry = find_method(entries, name);
  EXPECT_TRUE(entry) << name;
  std::erase_if(options, [&](const auto& one) { return (*entry)->option(one.first) == nullptr; });
  return options;
}

inline bool suits(const MethodDeclaration& method, const ModelDesc& desc) {
  return !method.suits || method.suits(desc).has_value();
}

/// Names of the methods that support such models.
template <class Entries>
std::vector<std::string> names_for(const Entries& entries, const ModelDesc& desc) {
  std::vector<std::string> names;
  for (const auto& entry : entries)
    if (suits(entry, desc)) names.push_back(entry.info.name);
  return names;
}

template <class Object>
Expected<std::unique_ptr<Object>> make_named(const std::vector<MethodEntry<Object>>& entries,
                                             const MethodChoice& choice, const MethodContext& context) {
  const auto entry = find_method(entries, choice.name);
  if (!entry) return entry.error();
  return (*entry)->make(choice.options, context);
}
inline Expected<std::unique_ptr<Decoder>> make_decoder(const MethodChoice& choice, const MethodContext& context) {
  return make_named(decoders(), choice, context);
}
inline Expected<std::unique_ptr<Window>> make_window(const MethodChoice& choice, const MethodContext& context) {
  return make_named(windows(), choice, context);
}
inline Expected<std::unique_ptr<CachePolicy>> make_cache_policy(const MethodChoice& choice,
                                                                const MethodContext& context = {}) {
  return make_named(caches(), choice, context);
}

/// A decoder for an answer of `length` positions.
inline std::unique_ptr<Decoder> decoder_of(const std::string& name, const OptionMap& options, Position length = 0,
                                           bool compat = false) {
  MethodContext context;
  context.length = length;
  context.compat = compat;
  return *make_decoder({name, options}, context);
}

inline double number(const OptionMap& options, std::string_view key) {
  return std::get<double>(options.find(key)->second);
}
inline std::int64_t integer(const OptionMap& options, std::string_view key) {
  return std::get<std::int64_t>(options.find(key)->second);
}

}  // namespace dllm::test
