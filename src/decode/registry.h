#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decode/cache/cache_policy.h"
#include "decode/decoder/decoder.h"
#include "decode/loop/canvas_sampler.h"
#include "decode/loop/soft_masks.h"
#include "decode/method_entry.h"
#include "decode/mode/mode.h"
#include "decode/window/suffix.h"
#include "decode/window/window.h"
#include "dllm/error.h"

namespace dllm {

using DecoderEntry = MethodEntry<Decoder>;
using WindowEntry = MethodEntry<Window>;
using CacheEntry = MethodEntry<CachePolicy>;
using SuffixEntry = MethodEntry<Suffix>;
using SmoothingEntry = MethodEntry<SmoothConfig>;
using ModeEntry = MethodEntry<ModeConfig>;
using CanvasEntry = MethodEntry<CanvasOptions>;

/// The methods of this build, one list per part of the decoding. Decoders that register_decoder() has added come last.
const std::vector<DecoderEntry>& decoders();
const std::vector<WindowEntry>& windows();
const std::vector<CacheEntry>& caches();
const std::vector<SuffixEntry>& suffixes();
const std::vector<SmoothingEntry>& smoothings();
/// For models that were trained for several (ModelDesc::modes).
const std::vector<ModeEntry>& modes();
/// For models that refine whole canvases instead of filling masks (Refiner).
const std::vector<CanvasEntry>& canvas_decoders();

/// Adds a decoder at run time (the Python package's dllm.Decoder), or replaces one of the same name that was added
/// before. Lists returned earlier stay valid and do not contain it. Thread-safe. Errors: kUsage if this build has a
/// decoder of the name, or if it is no name (lower-case letters, digits, hyphens).
Expected<void> register_decoder(DecoderEntry entry);
/// How often a decoder was added or replaced: what was derived from an earlier list is out of date.
std::size_t registered_decoders();
/// Whether the decoder of this name, if there is one, was added at run time.
bool is_replaceable(std::string_view name);

template <class Entries>
std::vector<std::string> method_names(const Entries& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.info.name);
  return names;
}

/// A usage error that lists the known names, or the nearest ones.
Error unknown_method(std::string_view name, const std::vector<std::string>& known);

/// The entry with that name or alias; underscores equal hyphens. Errors: kUsage.
template <class Entries>
auto find_method(const Entries& entries, std::string name) -> Expected<typename Entries::const_pointer> {
  std::replace(name.begin(), name.end(), '_', '-');
  for (const auto& entry : entries) {
    const std::vector<std::string>& aliases = entry.info.aliases;
    if (entry.info.name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return &entry;
  }
  return unknown_method(name, method_names(entries));
}

/// A method by name with some of its options. Errors: kUsage.
template <class Object>
Expected<std::unique_ptr<Object>> make_registered(const std::vector<MethodEntry<Object>>& entries,
                                                  const MethodChoice& choice, const MethodContext& context) {
  const auto entry = find_method(entries, choice.name);
  if (!entry) return entry.error();
  return (*entry)->make(choice.options, context);
}

/// What is true of a method with these complete options; of an unknown one, nothing. Constructs no method.
template <class Object>
MethodTraits traits_of(const std::vector<MethodEntry<Object>>& entries, const MethodChoice& choice) {
  const auto entry = find_method(entries, choice.name);
  return entry && (*entry)->traits ? (*entry)->traits(choice.options) : MethodTraits();
}

inline Expected<std::unique_ptr<Decoder>> make_decoder(const MethodChoice& choice, const MethodContext& context) {
  return make_registered(decoders(), choice, context);
}
inline Expected<std::unique_ptr<Window>> make_window(const MethodChoice& choice, const MethodContext& context) {
  return make_registered(windows(), choice, context);
}
inline Expected<std::unique_ptr<CachePolicy>> make_cache_policy(const MethodChoice& choice,
                                                                const MethodContext& context = {}) {
  return make_registered(caches(), choice, context);
}

}  // namespace dllm
