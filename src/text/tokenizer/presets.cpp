#include "text/tokenizer/presets.h"

#include <algorithm>
#include <initializer_list>

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

constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Ggml =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// OpenAI's o200k; llama.cpp's form splits marks and letters without case in another way.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// As o200k, with Chinese characters in pieces of their own, and without the slash after punctuation.
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kCommandDigits = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr std::string_view kBloomOriginal = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";

// DeepSeek's first: letters with case as of Unicode 12, punctuation of full width, Chinese, Japanese and Korean.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepseekCjk = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kDeepseekV3Cjk = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr std::string_view kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kSpark =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kYoutuScripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Groups of three digits, counted from the last one.
constexpr std::string_view kDigitsFromRight = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
constexpr std::string_view kAfmoeScripts =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{E40}-\x{E7F}\x{E80}-\x{EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";

std::vector<std::string> list(std::initializer_list<std::string_view> patterns) {
  return {patterns.begin(), patterns.end()};
}

// Tokenizers of the families that diffusion models come from first: of two presets with the same patterns, converted
// files name the first one.
void add_main_presets(std::vector<TokenizerPreset>& presets) {
  // "llada": unknown to llama.cpp, written by third parties for LLaDA-8B, whose vocabulary descends from Bailing's
  // (single digits; checked against recorded ids).
  presets.push_back({"bailingmoe", {"bailingmoe2", "llada-moe", "llada"}, list({kBailing}), {list({kBailingGgml})}});
  // NFC is part of the original tokenizer; llama.cpp leaves it out.
  presets.push_back({"qwen2", {"deepseek-r1-qwen", "f2llmv2"}, list({kQwen2}), {list({kQwen2Ggml})}, true});
  presets.push_back({"qwen35", {}, list({kQwen35}), {list({kQwen35Ggml})}, true});
  presets.push_back({"llama-bpe",
                     {"llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
                     list({kLlama3}),
                     {list({kLlama3Ggml})},
                     false,
                     true,
                     true});
  presets.push_back({"tekken", {}, list({kTekken}), {list({kTekkenGgml})}, false, true, true});
  presets.push_back(
      {"gpt-2",
       {"mpt", "olmo", "jais", "trillion", "granite-docling", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de",
        "jina-v1-en", "jina-v2-code", "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4"},
       list({kGpt2Pattern}),
       {list({kGpt2Ggml})}});
  presets.push_back({"default", {}, list({R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Ggml, R"(\p{N}+)", "[0-9][0-9][0-9]"}), {}});
  // Hugging Face's Digits(individual) and ByteLevel.
  presets.push_back({"smollm",
                     {"starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
                     list({R"(\p{N})", kGpt2Pattern}),
                     {list({R"(\p{N})", kGpt2Ggml})}});
}

void add_other_presets(std::vector<TokenizerPreset>& presets) {
  presets.push_back({"deepseek-llm",
                     {},
                     list({"[\r\n]", kDeepseekLetters, kDeepseekPunctuation, R"(\s+$)", kDeepseekCjk, R"(\p{N}+)"}),
                     {}});
  presets.push_back(
      {"deepseek-coder", {}, list({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk, R"(\p{N})"}), {}});
  presets.push_back({"deepseek-v3",
                     {"hunyuan-dense", "joyai-llm", "hy_v4"},
                     list({R"(\p{N}{1,3})", kDeepseekV3Cjk, kDeepseekV3}),
                     {}});
  presets.push_back({"spark2_5", {}, list({R"(\p{N}{1,3})", kDeepseekV3Cjk, kSpark, R"(\p{N})"}), {}});
  presets.push_back({"youtu", {}, list({kYoutuScripts, kYoutu}), {}, false, true});
  presets.push_back({"falcon", {}, list({R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Ggml, "[0-9][0-9][0-9]"}), {}});
  presets.push_back(
      {"hunyuan", {"stablelm2", "solar-open", "kormo", "megrez", "grok-2"}, list({kQwen2}), {list({kQwen2Ggml})}});
  presets.push_back({"smaug-bpe", {"chatglm-bpe", "dbrx"}, list({kLlama3}), {list({kLlama3Ggml})}});
  presets.push_back({"glm4", {"glm5"}, list({kLlama3}), {list({kLlama3Ggml})}, false, true});
  presets.push_back({"jais-2", {}, list({kJais2}), {}});
  presets.push_back({"bloom", {"poro-chat", "gpt3-finnish"}, list({kBloom}), {list({kBloomOriginal})}});
  presets.push_back({"viking", {}, list({kBloom, R"(\p{N})"}), {list({kBloomOriginal, R"(\p{N})"})}});
  presets.push_back({"gpt-4o", {"llama4", "kanana2", "talkie", "minimax-m2"}, list({kGpt4o}), {}});
  presets.push_back({"granite-embed-multi-97m", {}, list({kGpt4o}), {}, false, true});
  presets.push_back({"tiny_aya", {"cohere2moe"}, list({kCommandDigits, kGpt4o}), {}});
  presets.push_back({"kimi-k2", {}, list({kKimiK2}), {}});
  presets.push_back({"superbpe", {}, list({R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}), {}});
  presets.push_back({"seed-coder", {}, list({kSeedCoder}), {}});
  presets.push_back({"ufakzeka", {}, list({kUfakzeka}), {}});
  presets.push_back({"afmoe", {}, list({kDigitsFromRight, kAfmoeScripts, kDeepseekV3}), {}});
  presets.push_back({"laguna", {}, list({"[^\n]+|[\n]+", kQwen2}), {}});
  presets.push_back({"exaone-moe", {}, list({kExaoneMoe}), {}});
  presets.push_back({"minicpm5", {}, list({R"(\p{N}{1,3})", kMiniCpm5}), {}, false, true});
  presets.push_back({"chameleon",
                     {},
                     list({"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", R"(\p{N})",
                           R"([\p{P}!-/:-@\[-`{-~])", kGpt2Ggml}),
                     {},
                     false,
                     false,
                     true});
}

std::vector<TokenizerPreset> make_presets() {
  std::vector<TokenizerPreset> presets;
  add_main_presets(presets);
  add_other_presets(presets);
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

bool has_patterns(const TokenizerPreset& preset, const std::vector<std::string>& patterns) {
  return preset.patterns == patterns || std::ranges::find(preset.same_patterns, patterns) != preset.same_patterns.end();
}

const TokenizerPreset* preset_of_patterns(const std::vector<std::string>& patterns, bool ignore_merges) {
  for (const TokenizerPreset& preset : tokenizer_presets())
    if (preset.ignore_merges == ignore_merges && has_patterns(preset, patterns)) return &preset;
  return nullptr;
}

}  // namespace dllm
