#include "text/tokenizer/hf_pretokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/try.h"
#include "text/tokenizer/hf_json.h"
#include "text/tokenizer/presets.h"

namespace dllm {
namespace {

using hf::Json;

constexpr int kMaxNesting = 16;  // of Sequence in Sequence

struct Chain {
  TokenizerSpec& spec;
  bool byte_level = false;
};

void add_step(Chain& chain, std::string pattern, SplitRule rule) {
  chain.spec.patterns.push_back(std::move(pattern));
  chain.spec.rules.push_back(rule);
}

Expected<SplitBehavior> read_behavior(const Json& step, std::string otherwise) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  std::string name = hf::text(step, "behavior");
  if (name.empty()) name = std::move(otherwise);
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return hf::unsupported(fmt::format("split behaviour '{}'", name));
}

std::string escape_literal(const std::string& literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::ispunct(static_cast<unsigned char>(c)) != 0) pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

Expected<void> read_split(const Json& step, Chain& chain) {
  const Json* pattern = hf::member(step, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return hf::invalid("a Split step has no pattern");
  std::string regex = hf::text(*pattern, "Regex");
  if (regex.empty()) regex = escape_literal(hf::text(*pattern, "String"));
  if (regex.empty()) return hf::invalid("a Split step's pattern is neither 'Regex' nor 'String'");
  DLLM_TRY(const SplitBehavior behavior, read_behavior(step, ""));
  DLLM_TRY(const bool invert, hf::flag(step, "invert", false));
  add_step(chain, std::move(regex), {behavior, invert});
  return {};
}

Expected<void> read_byte_level(const Json& step, Chain& chain) {
  DLLM_TRY(const bool prefix_space, hf::flag(step, "add_prefix_space", true));
  DLLM_TRY(const bool use_regex, hf::flag(step, "use_regex", true));
  if (prefix_space && !chain.spec.patterns.empty()) {
    return hf::unsupported("ByteLevel with add_prefix_space after other pre-tokenizers");
  }
  chain.byte_level = true;
  chain.spec.add_prefix_space = prefix_space;
  if (use_regex) add_step(chain, std::string(kGpt2Pattern), {});
  return {};
}

Expected<void> read_step(const Json& step, Chain& chain, int depth) {
  const std::string type = hf::text(step, "type");
  if (chain.byte_level) return hf::unsupported(fmt::format("pre-tokenizer '{}' after ByteLevel", type));
  if (type == "Sequence") {
    const Json* steps = hf::member(step, "pretokenizers");
    if (steps == nullptr || !steps->is_array()) return hf::invalid("a Sequence has no list 'pretokenizers'");
    if (depth >= kMaxNesting) return hf::invalid("pre-tokenizer sequences are nested too deeply");
    for (const Json& inner : *steps) DLLM_CHECK_OK(read_step(inner, chain, depth + 1));
    return {};
  }
  if (type == "ByteLevel") return read_byte_level(step, chain);
  if (type == "Split") return read_split(step, chain);
  if (type == "Digits") {
    DLLM_TRY(const bool individual, hf::flag(step, "individual_digits", false));
    add_step(chain, individual ? R"(\p{N})" : R"(\p{N}+)", {});
    return {};
  }
  if (type == "Punctuation") {
    DLLM_TRY(const SplitBehavior behavior, read_behavior(step, "Isolated"));
    add_step(chain, R"([\p{P}$+<=>^`|~])", {behavior, false});
    return {};
  }
  if (type == "Whitespace") {
    // Not Oniguruma's \w but that of Rust's regex crate, which has the joiners too.
    add_step(chain, R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)", {SplitBehavior::kRemoved, true});
    return {};
  }
  if (type == "WhitespaceSplit") {
    add_step(chain, R"(\s)", {SplitBehavior::kRemoved, false});
    return {};
  }
  return hf::unsupported(fmt::format("pre-tokenizer '{}'", type));
}

}  // namespace

Expected<void> read_hf_pretokenizer(const Json& entry, TokenizerSpec& spec) {
  Chain chain{spec};
  if (!entry.is_null()) DLLM_CHECK_OK(read_step(entry, chain, 0));
  if (!chain.byte_level) {
    return hf::unsupported("the pre-tokenizer is not ByteLevel", "only byte-level BPE vocabularies are supported");
  }
  const auto plain = [](const SplitRule& rule) { return rule == SplitRule{}; };
  if (std::ranges::all_of(spec.rules, plain)) {
    spec.rules.clear();
    if (const auto* preset = preset_of_patterns(spec.patterns, spec.ignore_merges)) spec.pre_name = preset->name;
  }
  return {};
}

Expected<void> read_hf_normalizer(const Json& entry, TokenizerSpec& spec) {
  if (entry.is_null()) return {};
  const std::string type = hf::text(entry, "type");
  if (type == "NFC") {
    spec.nfc = true;
    return {};
  }
  const Json* steps = hf::member(entry, "normalizers");
  if (type == "Sequence" && steps != nullptr && steps->is_array()) {
    for (const Json& step : *steps) {
      // One level: real files do not nest sequences of normalizers, and NFC twice is NFC.
      if (hf::text(step, "type") != "NFC") {
        return hf::unsupported(fmt::format("normalizer '{}'", hf::text(step, "type")));
      }
      spec.nfc = true;
    }
    return {};
  }
  return hf::unsupported(fmt::format("normalizer '{}'", type));
}

}  // namespace dllm
