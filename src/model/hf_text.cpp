#include "model/hf_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/input_file.h"
#include "base/try.h"
#include "format/mapped_file.h"
#include "text/tokenizer/hf_vocabulary.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

using Json = nlohmann::json;

std::string path_of(const std::string& directory, std::string_view name) {
  return (std::filesystem::path(directory) / name).string();
}

/// The text modules name the file; this module adds the directory.
Expected<TokenizerSpec> with_path(Expected<TokenizerSpec> result, const std::string& directory) {
  if (result) return result;
  Error error = std::move(result).error();
  error.where = path_of(directory, error.where);
  return error;
}

/// Reads a JSON object from a file; an empty object if there is no file.
Expected<HfConfig> read_config(const std::string& directory, const std::string& name) {
  DLLM_TRY(const std::string text, read_hf_file(directory, name, false));
  return HfConfig::parse(text.empty() ? "{}" : text, path_of(directory, name));
}

/// From a list of {name, template}, the one that transformers uses by default.
Expected<std::string> default_template(const Json& list, const std::string& file) {
  std::vector<std::string> names;
  for (const Json& entry : list) {
    const auto text_of = [&](const char* key) {
      const auto it = entry.is_object() ? entry.find(key) : entry.end();
      return entry.is_object() && it != entry.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    if (text_of("name") == "default") return text_of("template");
    names.push_back(text_of("name"));
  }
  return Error{ErrorCode::kInvalidFile,
               fmt::format("'chat_template' has {} templates, and none is named default", names.size()), file, ""};
}

Expected<std::string> template_of(const HfConfig& config) {
  const auto it = config.json().find("chat_template");
  if (it == config.json().end() || !it->is_array()) return config.string_or("chat_template", "");
  return default_template(*it, config.file());
}

/// transformers prefers the template's own file to the entry in tokenizer_config.json; empty if there is neither.
Expected<std::string> read_chat_template(const std::string& directory, const HfConfig& tokenizer_config) {
  DLLM_TRY(std::string jinja, read_hf_file(directory, "chat_template.jinja", false));
  if (!jinja.empty()) return jinja;
  DLLM_TRY(const HfConfig json, read_config(directory, "chat_template.json"));
  return template_of(json.contains("chat_template") ? json : tokenizer_config);
}

Expected<TokenId> checked_id(std::int64_t id, std::string_view key, const std::string& file, std::int64_t rows) {
  if (id >= 0 && id < rows) return static_cast<TokenId>(id);
  return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is {}, outside the embedding of {} rows", key, id, rows),
               file, ""};
}

/// A role that the tokenizer's files do not set may be set in config.json.
Expected<void> fill_role(const HfConfig& config, std::string_view key, std::int64_t rows,
                         std::optional<TokenId>& role) {
  DLLM_TRY(const auto id, config.optional_integer(key));
  if (role || !id) return {};
  DLLM_TRY(role, checked_id(*id, key, config.file(), rows));
  return {};
}

/// Unlike the other roles, the mask comes from config.json, because the model's own sampler reads it there. Tokenizers
/// of autoregressive models may have one left over from their family.
Expected<void> fill_mask(const HfConfig& config, const HfTextFacts& facts, TokenizerSpec& spec) {
  if (!facts.mask) {
    spec.mask.reset();
    return {};
  }
  DLLM_TRY(const auto id, config.optional_integer("mask_token_id"));
  if (id) {
    DLLM_TRY(spec.mask, checked_id(*id, "mask_token_id", config.file(), facts.embedding_rows));
  }
  for (std::size_t token = 0; !spec.mask && token < spec.tokens.size(); ++token)
    if (spec.kinds[token] == TokenKind::kControl &&
        (spec.tokens[token] == "<|mdm_mask|>" || spec.tokens[token] == "<|mask|>"))
      spec.mask = static_cast<TokenId>(token);
  // LLaDA-MoE's files do not contain it: its model card does.
  if (const auto published = static_cast<std::size_t>(*facts.mask);
      !spec.mask && published < spec.tokens.size() && spec.kinds[published] != TokenKind::kNormal)
    spec.mask = facts.mask;
  if (spec.mask) return {};
  return Error{ErrorCode::kInvalidFile, "'mask_token_id' is missing, and no token is named <|mdm_mask|> or <|mask|>",
               config.file(), "a masked diffusion model cannot run without its mask token: add the id to config.json"};
}

/// Appends the ids that end an answer according to one file: a number or a list.
Expected<void> collect_stops(const HfConfig& config, std::int64_t rows, std::vector<TokenId>& stops) {
  const auto it = config.json().find("eos_token_id");
  if (it == config.json().end() || it->is_null()) return {};
  for (const Json& value : it->is_array() ? *it : Json::array({*it})) {
    if (!value.is_number_integer())
      return Error{ErrorCode::kInvalidFile, fmt::format("'eos_token_id' holds {}, wanted an integer", value.dump()),
                   config.file(), ""};
    DLLM_TRY(const TokenId id, checked_id(value.get<std::int64_t>(), "eos_token_id", config.file(), rows));
    if (std::ranges::find(stops, id) == stops.end()) stops.push_back(id);
  }
  return {};
}

/// GGUF has three keys for tokens that end an answer. TokenizerSpec does not have `eom`.
Expected<void> place_stops(std::vector<TokenId> stops, const std::string& directory, TokenizerSpec& spec,
                           std::optional<TokenId>& eom) {
  for (std::optional<TokenId>* role : {&spec.eos, &spec.eot, &eom}) {
    if (!*role && !stops.empty()) *role = stops.front();
    std::erase(stops, role->value_or(-1));
  }
  if (stops.empty()) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("{} more tokens end an answer than GGUF has keys for (three)", stops.size()),
               path_of(directory, "generation_config.json"), "shorten the list 'eos_token_id'"};
}

Expected<void> fill_vocabulary(const HfTextFacts& facts, const std::string& directory, TokenizerSpec& spec) {
  const auto rows = static_cast<std::size_t>(facts.embedding_rows);
  if (spec.tokens.size() > rows)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} tokens, but the embedding has {} rows", spec.tokens.size(), rows),
                 path_of(directory, "tokenizer.json"), "tokenizer and weights are of different models"};
  for (std::size_t id = spec.tokens.size(); id < rows; ++id) {
    spec.tokens.push_back(fmt::format("[PAD{}]", id));
    spec.kinds.push_back(TokenKind::kUnused);
  }
  return {};
}

/// From tokenizer.json, or from vocab.json and merges.txt if there is none.
Expected<TokenizerSpec> read_spec(const std::string& directory) {
  const auto read = [&](const char* name, bool required) { return read_hf_file(directory, name, required); };
  DLLM_TRY(const std::string json, read("tokenizer.json", false));
  HfVocabularyFiles files;
  DLLM_TRY(files.config, read("tokenizer_config.json", false));
  if (!json.empty()) return with_path(Tokenizer::spec_from_hf(json, files.config), directory);
  DLLM_TRY(files.vocabulary, read("vocab.json", false));
  if (files.vocabulary.empty())
    return Error{ErrorCode::kInvalidFile, "there is neither tokenizer.json nor vocab.json", directory,
                 "the download is incomplete"};
  DLLM_TRY(files.merges, read("merges.txt", true));
  DLLM_TRY(files.added, read("added_tokens.json", false));
  DLLM_TRY(files.special, read("special_tokens_map.json", false));
  return with_path(spec_from_hf_vocabulary(files), directory);
}

}  // namespace

Expected<std::string> read_hf_file(const std::string& directory, const std::string& name, bool required) {
  const std::string path = path_of(directory, name);
  std::error_code ignored;
  if (!required && !std::filesystem::exists(path, ignored)) return std::string();
  return read_input(path);
}

Expected<void> add_hf_text(const std::string& directory, const HfConfig& config, const HfTextFacts& facts,
                           Metadata& metadata) {
  DLLM_TRY(TokenizerSpec spec, read_spec(directory));
  DLLM_CHECK_OK(fill_vocabulary(facts, directory, spec));
  DLLM_TRY(const HfConfig generation, read_config(directory, "generation_config.json"));
  std::vector<TokenId> stops;
  DLLM_CHECK_OK(collect_stops(config, facts.embedding_rows, stops));
  DLLM_CHECK_OK(collect_stops(generation, facts.embedding_rows, stops));
  std::optional<TokenId> eom;
  DLLM_CHECK_OK(place_stops(std::move(stops), directory, spec, eom));
  DLLM_CHECK_OK(fill_role(config, "bos_token_id", facts.embedding_rows, spec.bos));
  DLLM_CHECK_OK(fill_role(config, "pad_token_id", facts.embedding_rows, spec.pad));
  DLLM_CHECK_OK(fill_mask(config, facts, spec));

  DLLM_CHECK_OK(Tokenizer::spec_to_gguf(spec, metadata));
  if (eom) metadata.set("tokenizer.ggml.eom_token_id", MetaValue::u32(static_cast<std::uint32_t>(*eom)));
  DLLM_TRY(const HfConfig tokenizer_config, read_config(directory, "tokenizer_config.json"));
  DLLM_TRY(std::string chat_template, read_chat_template(directory, tokenizer_config));
  if (!chat_template.empty()) metadata.set("tokenizer.chat_template", MetaValue::string(std::move(chat_template)));
  return {};
}

}  // namespace dllm
