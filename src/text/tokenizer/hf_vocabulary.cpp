#include "text/tokenizer/hf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/try.h"
#include "text/tokenizer/hf_spec.h"
#include "text/tokenizer/presets.h"

namespace dllm {
namespace {

using hf::Json;

Error invalid_file(std::string what, const char* file) { return {ErrorCode::kInvalidFile, std::move(what), file, ""}; }

/// The preset of a tokenizer class. Custom classes (Dream's) also have an `auto_map`, but the name suffices.
Expected<const TokenizerPreset*> preset_of_class(const Json& config) {
  std::string name = hf::text(config, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  for (const auto& [known, preset] : {std::pair<std::string_view, std::string_view>{"Qwen2Tokenizer", "qwen2"},
                                      {"DreamTokenizer", "qwen2"},
                                      {"GPT2Tokenizer", "gpt-2"}})
    if (name == known) return find_preset(preset);
  return Error{ErrorCode::kUnsupported,
               name.empty() ? "there is no tokenizer.json, and no 'tokenizer_class' tells how vocab.json is used"
                            : fmt::format("there is no tokenizer.json, and '{}' is not a known tokenizer class", name),
               "tokenizer_config.json",
               "known: Qwen2Tokenizer, DreamTokenizer, GPT2Tokenizer. Or make a tokenizer.json: "
               "transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"};
}

Json merges_of(std::string_view text) {
  Json merges = Json::array();
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !(first && line.starts_with("#version"))) merges.push_back(line);
  }
  return merges;
}

/// Every token that special_tokens_map.json names: {role: token, {"content": token} or a list of either}.
std::set<std::string> special_names(const Json& map) {
  std::set<std::string> names;
  for (const Json& role : map)
    for (const Json& token : role.is_array() ? role : Json::array({role}))
      names.insert(token.is_string() ? token.get<std::string>() : hf::text(token, "content"));
  return names;
}

/// Tokens of added_tokens.json. Used only if tokenizer_config.json has no list: SDAR's two files disagree about the
/// mask's name, and transformers uses the latter.
Expected<Json> added_tokens_of(const HfVocabularyFiles& files, const Json& config) {
  Json tokens = Json::array();
  if (hf::member(config, "added_tokens_decoder") != nullptr) return tokens;
  DLLM_TRY(const Json added, hf::object_of(files.added, "added_tokens.json"));
  DLLM_TRY(const Json special, hf::object_of(files.special, "special_tokens_map.json"));
  const std::set<std::string> names = special_names(special);
  for (const auto& [text, id] : added.items()) {
    if (!id.is_number_integer())
      return invalid_file(fmt::format("the id of '{}' is not an integer", text), "added_tokens.json");
    tokens.push_back({{"id", id}, {"content", text}, {"special", names.contains(text)}});
  }
  return tokens;
}

}  // namespace

Expected<TokenizerSpec> spec_from_hf_vocabulary(const HfVocabularyFiles& files) {
  DLLM_TRY(const Json config, hf::object_of(files.config, "tokenizer_config.json"));
  DLLM_TRY(const TokenizerPreset* preset, preset_of_class(config));
  DLLM_TRY(Json vocabulary, hf::object_of(files.vocabulary, "vocab.json"));
  DLLM_TRY(Json tokens, added_tokens_of(files, config));
  DLLM_TRY(const bool prefix_space, hf::flag(config, "add_prefix_space", false));
  Json merges = merges_of(files.merges);
  if (merges.empty()) return invalid_file("there are no merges", "merges.txt");

  Json steps = Json::array();
  for (const std::string& pattern : preset->patterns)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"use_regex", false}});
  Json root;
  root["model"] = {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}};
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  if (preset->nfc) root["normalizer"] = {{"type", "NFC"}};
  root["added_tokens"] = std::move(tokens);
  DLLM_TRY(const Json special, hf::object_of(files.special, "special_tokens_map.json"));
  auto spec = hf::spec_of(root, config, special);
  if (spec) return spec;
  Error error = std::move(spec).error();
  if (error.where == "tokenizer.json") error.where = "vocab.json";  // the only part that comes from a file
  return error;
}

}  // namespace dllm
