#include "engine/option_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>

#include "base/forks.h"
#include "base/try.h"
#include "decode/loop/canvas_methods.h"
#include "decode/registry.h"
#include "engine/common_options.h"
#include "engine/presets.h"

namespace dllm {
namespace {

template <class Entries>
std::vector<const MethodDeclaration*> declarations(const Entries& entries) {
  std::vector<const MethodDeclaration*> all;
  for (const auto& entry : entries) all.push_back(&entry);
  return all;
}

/// "threshold; native for models of several modes": what the methods declare, the one without a condition first.
std::string standard_text(const std::vector<const MethodDeclaration*>& methods) {
  std::vector<std::string> words;
  for (const MethodDeclaration* method : methods) {
    if (!method->standard) continue;
    const bool always = method->standard_words.empty();
    words.insert(always ? words.begin() : words.end(),
                 always ? method->info.name : method->info.name + " " + method->standard_words);
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

OptionInfo selector(std::string key, std::vector<std::string> flags, std::string meaning,
                    const std::vector<const MethodDeclaration*>& methods) {
  OptionInfo info;
  info.key = std::move(key);
  info.flags = std::move(flags);
  info.type = OptionType::kChoice;
  info.meaning = std::move(meaning);
  info.standard_text = standard_text(methods);
  for (const MethodDeclaration* method : methods) info.choices.push_back(method->info.name);
  return info;
}

using G = GenerateOptions;
using R = ResolvedOptions;

std::vector<OptionPart> make_parts() {
  const auto decoder_list = declarations(decoders()), window_list = declarations(windows()),
             cache_list = declarations(caches()), suffix_list = declarations(suffixes()),
             smoothing_list = declarations(smoothings()), mode_list = declarations(modes());
  const auto decoder = selector("algorithm", {"--algorithm", "--diffusion-algorithm"}, "which positions a step commits",
                                decoder_list),
             window = selector("window", {"--window"}, "positions that compete in a step", window_list),
             cache = selector("cache", {"--cache"}, "K/V rows kept between steps", cache_list),
             suffix = selector("suffix", {"--suffix"}, "masks after the window that the model sees", suffix_list),
             mode = selector("mode", {"--mode"}, "how a model decodes that was trained for several ways", mode_list);
  return {
      {"decoder", decoder, &G::decoder, &R::decoder, decoder_list, declarations(canvas_decoders())},
      {"window", window, &G::window, &R::window, window_list, declarations(canvas_windows())},
      {"cache", cache, &G::cache, &R::cache, cache_list, declarations(canvas_caches())},
      {"suffix", suffix, &G::suffix, &R::suffix, suffix_list, {}},
      {"smoothing", {}, &G::smoothing, &R::smoothing, smoothing_list, {}},
      {"mode", mode, &G::mode, &R::mode, mode_list, {}},
  };
}

}  // namespace

const MethodDeclaration* named(const std::vector<const MethodDeclaration*>& methods, std::string_view name) {
  for (const MethodDeclaration* method : methods)
    if (is_called(method->info, name)) return method;
  return nullptr;
}

bool names_option(const OptionInfo& info, std::string_view word) {
  return info.key == word || std::find(info.flags.begin(), info.flags.end(), word) != info.flags.end();
}

std::string OptionPart::standard(const ModelDesc& desc) const {
  if (desc.canvas.length > 0 && !canvas_methods.empty()) return canvas_methods.front()->info.name;
  for (const MethodDeclaration* method : methods)
    if (method->standard && method->standard(desc)) return method->info.name;
  return "";
}

std::vector<std::string> OptionPart::readers(std::string_view key) const {
  std::vector<std::string> names;
  for (const MethodDeclaration* method : methods)
    if (method->option(key) != nullptr) names.push_back(method->info.name);
  return names;
}

const OptionInfo* OptionPart::find(std::string_view key_or_flag) const {
  for (const MethodDeclaration* method : methods)
    for (const OptionInfo& one : method->info.options)
      if (names_option(one, key_or_flag)) return &one;
  return nullptr;
}

namespace {

/// What is derived from the registry, for one state of it.
struct OptionTables {
  std::size_t registered = 0;  ///< decoders added at run time
  std::vector<OptionPart> parts{};
  OptionsInfo info{};
};

OptionsInfo describe(const std::vector<OptionPart>& parts) {
  OptionsInfo all;
  for (const CommonOption& one : common_options()) all.common.push_back(one.info());
  for (const OptionPart& part : parts) {
    PartInfo described{part.name, part.selector, {}};
    for (const MethodDeclaration* method : part.methods) described.methods.push_back(method->info);
    all.parts.push_back(std::move(described));
  }
  for (const Preset& preset : presets()) all.presets.push_back(preset.info);
  return all;
}

const OptionTables& option_tables() {
  const Unforked whole;
  static std::mutex mutex;
  static std::deque<OptionTables> all;  // earlier ones stay valid for those who refer to them
  const std::lock_guard lock(mutex);
  const std::size_t registered = registered_decoders();
  if (all.empty() || all.back().registered != registered) {
    OptionTables tables{registered, make_parts()};
    tables.info = describe(tables.parts);
    all.push_back(std::move(tables));
  }
  return all.back();
}

bool same_declaration(const OptionInfo& a, const OptionInfo& b) {
  return a.flags == b.flags && a.type == b.type && a.minimum == b.minimum && a.maximum == b.maximum &&
         a.choices == b.choices;
}

std::string_view type_name(OptionType type) {
  constexpr std::string_view kNames[] = {"a switch", "an integer", "an integer", "a number", "a text", "a choice"};
  return kNames[static_cast<std::size_t>(type)];
}

/// Errors: kUsage if another option makes the key or a flag ambiguous.
Expected<void> check_distinct(const OptionInfo& info, const OptionInfo& other, bool same_part) {
  const bool shared = names_option(other, info.key) || std::ranges::any_of(info.flags, [&](const std::string& flag) {
                        return names_option(other, flag);
                      });
  if (!shared || (same_part && info.key == other.key && same_declaration(info, other))) return {};
  std::string what = fmt::format("there is an option '{}' already", other.key);
  if (same_part) {
    what += fmt::format(", with another type, range or choices: {}", type_name(other.type));
    if (std::isfinite(other.minimum) || std::isfinite(other.maximum))
      what += fmt::format(" from {} to {}", other.minimum, other.maximum);
    if (!other.choices.empty()) what += fmt::format(" of {}", fmt::join(other.choices, ", "));
  }
  return Error{ErrorCode::kUsage, std::move(what), info.key,
               same_part ? "declare it alike, or choose another name" : "choose another name"};
}

}  // namespace

const std::vector<OptionPart>& option_parts() { return option_tables().parts; }

const OptionsInfo& options_info() { return option_tables().info; }

Expected<void> add_decoder(DecoderEntry entry) {
  const OptionsInfo& all = options_info();
  OptionInfo preset;
  preset.key = "preset";
  preset.flags = {"--preset"};
  for (const OptionInfo& info : entry.info.options) {
    DLLM_CHECK_OK(check_distinct(info, preset, false));
    for (const OptionInfo& other : all.common) DLLM_CHECK_OK(check_distinct(info, other, false));
    for (const PartInfo& part : all.parts) {
      if (!part.selector.key.empty()) DLLM_CHECK_OK(check_distinct(info, part.selector, false));
      for (const MethodInfo& method : part.methods) {
        const bool decoder = part.name == "decoder";
        if (decoder && method.name == entry.info.name && is_replaceable(method.name)) continue;
        for (const OptionInfo& other : method.options) DLLM_CHECK_OK(check_distinct(info, other, decoder));
      }
    }
  }
  return register_decoder(std::move(entry));
}

}  // namespace dllm
