#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dllm {

/// The meaning of a name in `tokenizer.ggml.pre`.
struct TokenizerPreset {
  std::string_view name;
  std::vector<std::string_view> aliases;  ///< other names that files use
  std::vector<std::string> patterns;
  std::vector<std::vector<std::string>> same_patterns;  ///< other spellings of `patterns` found in tokenizer.json
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  ///< unless the file says otherwise
};

/// The pattern of GPT-2's ByteLevel pre-tokenizer.
extern const std::string_view kGpt2Pattern;

const std::vector<TokenizerPreset>& tokenizer_presets();

/// By name or alias; nullptr if unknown.
const TokenizerPreset* find_preset(std::string_view name);

/// Whether the preset has these patterns, in one of their spellings.
bool has_patterns(const TokenizerPreset& preset, const std::vector<std::string>& patterns);

/// The preset with these patterns, nullptr if none. `ignore_merges` distinguishes presets with the same patterns.
const TokenizerPreset* preset_of_patterns(const std::vector<std::string>& patterns, bool ignore_merges);

}  // namespace dllm
