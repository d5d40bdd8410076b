#include "model/hf_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/input_file.h"
#include "base/try.h"
#include "format/mapped_file.h"
#include "model/describe.h"
#include "model/model.h"
#include "text/tokenizer/hf_vocabulary.h"
#include "text/tokenizer/roles.h"
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

/// The templates that transformers chooses between; empty: there is none.
struct Templates {
  std::string plain, tools;
};

/// From a list of {name, template}.
Expected<Templates> named_templates(const Json& list, const std::string& file) {
  std::vector<std::string> names;
  Templates templates;
  for (const Json& entry : list) {
    const auto text_of = [&](const char* key) {
      const auto it = entry.is_object() ? entry.find(key) : entry.end();
      return entry.is_object() && it != entry.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    names.push_back(text_of("name"));
    if (names.back() == "default") templates.plain = text_of("template");
    if (names.back() == "tool_use") templates.tools = text_of("template");
  }
  if (std::ranges::find(names, "default") != names.end()) return templates;
  return Error{ErrorCode::kInvalidFile,
               fmt::format("'chat_template' has {} templates, and none is named default", names.size()), file, ""};
}

Expected<Templates> templates_of(const HfConfig& config) {
  const auto it = config.json().find("chat_template");
  if (it != config.json().end() && it->is_array()) return named_templates(*it, config.file());
  Templates templates;
  DLLM_TRY(templates.plain, config.string_or("chat_template", ""));
  return templates;
}

/// transformers prefers the templates' own files to the entry in tokenizer_config.json.
Expected<Templates> read_chat_templates(const std::string& directory, const HfConfig& tokenizer_config) {
  Templates templates;
  DLLM_TRY(templates.plain, read_hf_file(directory, "chat_template.jinja", false));
  DLLM_TRY(templates.tools, read_hf_file(directory, "additional_chat_templates/tool_use.jinja", false));
  if (!templates.plain.empty()) return templates;
  DLLM_TRY(const HfConfig json, read_config(directory, "chat_template.json"));
  DLLM_TRY(Templates named, templates_of(json.contains("chat_template") ? json : tokenizer_config));
  if (!templates.tools.empty()) named.tools = std::move(templates.tools);
  return named;
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
  std::unordered_set<TokenId> known(stops.begin(), stops.end());
  for (const Json& value : it->is_array() ? *it : Json::array({*it})) {
    if (!value.is_number_integer())
      return Error{ErrorCode::kInvalidFile, fmt::format("'eos_token_id' holds {}, wanted an integer", value.dump()),
                   config.file(), ""};
    DLLM_TRY(const TokenId id, checked_id(value.get<std::int64_t>(), "eos_token_id", config.file(), rows));
    if (known.insert(id).second) stops.push_back(id);
  }
  return {};
}

/// GGUF has three keys for tokens that end an answer; TokenizerSpec does not have `eom`. Those beyond are left in
/// `stops`.
void place_stops(std::vector<TokenId>& stops, TokenizerSpec& spec, std::optional<TokenId>& eom) {
  for (std::optional<TokenId>* role : {&spec.eos, &spec.eot, &eom}) {
    if (!*role && !stops.empty()) *role = stops.front();
    std::erase(stops, role->value_or(-1));
  }
}

/// Roles of ids in config.json and generation_config.json.
void settle_stops(TokenizerSpec& spec, const std::optional<TokenId>& eom, const std::vector<TokenId>& stops) {
  settle_roles(spec);
  std::vector<TokenRole> roles;
  if (eom) roles.push_back({"eos", *eom});
  for (const TokenId id : stops) roles.push_back({"eos", id});
  settle_roles(spec, roles);
}

/// Leaves out last tokens that only a name adds and that the model has no row for.
void drop_appended(TokenizerSpec& spec, std::size_t rows) {
  while (spec.tokens.size() > rows && spec.appended > 0) {
    spec.warnings.push_back(fmt::format("token {} '{}' is left out: the model has no row for it",
                                        spec.tokens.size() - 1, spec.tokens.back()));
    spec.tokens.pop_back();
    spec.kinds.pop_back();
    --spec.appended;
  }
  const auto end = static_cast<TokenId>(spec.tokens.size());
  for (std::optional<TokenId>* role : {&spec.bos, &spec.eos, &spec.pad, &spec.mask, &spec.unk})
    if (role->value_or(-1) >= end) role->reset();
  std::erase_if(spec.flags, [&](const AddedTokenFlags& flags) { return flags.id >= end; });
}

Expected<void> fill_vocabulary(const HfTextFacts& facts, const std::string& directory, TokenizerSpec& spec) {
  const auto rows = static_cast<std::size_t>(facts.embedding_rows);
  drop_appended(spec, rows);
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
  DLLM_TRY(files.special, read("special_tokens_map.json", false));
  if (!json.empty()) return with_path(Tokenizer::spec_from_hf(json, files.config, files.special), directory);
  DLLM_TRY(files.vocabulary, read("vocab.json", false));
  if (files.vocabulary.empty())
    return Error{ErrorCode::kInvalidFile, "there is neither tokenizer.json nor vocab.json", directory,
                 "the download is incomplete"};
  DLLM_TRY(files.merges, read("merges.txt", true));
  DLLM_TRY(files.added, read("added_tokens.json", false));
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
                           Metadata& metadata, std::vector<std::string>& warnings) {
  DLLM_TRY(TokenizerSpec spec, read_spec(directory));
  DLLM_CHECK_OK(fill_vocabulary(facts, directory, spec));
  DLLM_TRY(const HfConfig generation, read_config(directory, "generation_config.json"));
  std::vector<TokenId> stops;
  DLLM_CHECK_OK(collect_stops(config, facts.embedding_rows, stops));
  DLLM_CHECK_OK(collect_stops(generation, facts.embedding_rows, stops));
  std::optional<TokenId> eom;
  place_stops(stops, spec, eom);
  DLLM_CHECK_OK(fill_role(config, "bos_token_id", facts.embedding_rows, spec.bos));
  DLLM_CHECK_OK(fill_role(config, "pad_token_id", facts.embedding_rows, spec.pad));
  DLLM_CHECK_OK(fill_mask(config, facts, spec));
  settle_stops(spec, eom, stops);
  warnings = spec.warnings;

  DLLM_CHECK_OK(Tokenizer::spec_to_gguf(spec, metadata));
  if (eom) metadata.set("tokenizer.ggml.eom_token_id", MetaValue::u32(static_cast<std::uint32_t>(*eom)));
  if (!stops.empty()) metadata.set(std::string(kMoreStopsKey), MetaValue::i32s({stops.begin(), stops.end()}));
  DLLM_TRY(const HfConfig tokenizer_config, read_config(directory, "tokenizer_config.json"));
  DLLM_TRY(const Templates templates, read_chat_templates(directory, tokenizer_config));
  for (const auto& [key, source] :
       {std::pair(kChatTemplateKey, &templates.plain), {kToolTemplateKey, &templates.tools}})
    if (!source->empty()) metadata.set(std::string(key), MetaValue::string(*source));
  return {};
}

}  // namespace dllm
