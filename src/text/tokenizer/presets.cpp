#include "text/tokenizer/presets.h"

#include <algorithm>

namespace dllm {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// The patterns are those of the published tokenizers; their names follow llama.cpp's convention. Where llama.cpp
// rewrites a pattern for its own regex engine (no (?i:), no possessive quantifiers), this table has the original, and
// the rewritten form under same_patterns: PCRE2 runs the original.
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Ggml =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Ggml =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Unlike in Qwen2's, a piece of white space ends after one newline, not after a run of them.
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kBailingGgml =
    R"('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
// Mistral's: words end where a capital follows a small letter, and digits stay alone.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenGgml =
    R"([^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+|[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))+((?=[\p{L}])([^A-Z]))*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Without the last alternative of kGpt2Pattern; what it would match is a piece anyway, being between matches.
constexpr std::string_view kGpt2Ggml = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

std::vector<TokenizerPreset> make_presets() {
  const auto list = [](auto... patterns) { return std::vector<std::string>{std::string(patterns)...}; };
  std::vector<TokenizerPreset> presets;
  // "llada": unknown to llama.cpp, written by third parties for LLaDA-8B, whose vocabulary descends from Bailing's
  // (single digits; checked against recorded ids).
  presets.push_back({"bailingmoe", {"bailingmoe2", "llada-moe", "llada"}, list(kBailing), {list(kBailingGgml)}});
  // NFC is part of the original tokenizer; llama.cpp leaves it out.
  presets.push_back({"qwen2", {"deepseek-r1-qwen"}, list(kQwen2), {list(kQwen2Ggml)}, true});
  presets.push_back({"llama-bpe", {"llama3", "llama-v3"}, list(kLlama3), {list(kLlama3Ggml)}, false, true, true});
  presets.push_back({"tekken", {}, list(kTekken), {list(kTekkenGgml)}, false, true});
  presets.push_back({"gpt-2", {}, list(kGpt2Pattern), {list(kGpt2Ggml)}});
  presets.push_back({"default", {}, list(R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Ggml, R"(\p{N}+)", "[0-9][0-9][0-9]"), {}});
  return presets;
}

}  // namespace

const std::vector<TokenizerPreset>& tokenizer_presets() {
  static const std::vector<TokenizerPreset> presets = make_presets();
  return presets;
}

const TokenizerPreset* find_preset(std::string_view name) {
  for (const TokenizerPreset& preset : tokenizer_presets()) {
    if (preset.name == name || std::ranges::find(preset.aliases, name) != preset.aliases.end()) return &preset;
  }
  return nullptr;
}

const TokenizerPreset* preset_of_patterns(const std::vector<std::string>& patterns, bool ignore_merges) {
  for (const TokenizerPreset& preset : tokenizer_presets()) {
    if (preset.ignore_merges != ignore_merges) continue;
    if (preset.patterns == patterns) return &preset;
    for (const auto& same : preset.same_patterns) {
      if (same == patterns) return &preset;
    }
  }
  return nullptr;
}

}  // namespace dllm
