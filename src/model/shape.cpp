#include "model/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <map>

#include "base/log.h"
#include "base/try.h"
#include "model/architecture.h"
#include "model/describe.h"
#include "model/hf_config.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {
namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;

/// A unique word per id: a space and at least two letters, so that decoded text looks like words.
std::string made_up_word(std::int64_t number) {
  std::string letters;
  for (std::int64_t rest = number; rest > 0 || letters.size() < 2; rest /= 26)
    letters += static_cast<char>('a' + rest % 26);
  return encode_alphabet(" " + letters);
}

/// The published ids if the vocabulary holds them all; else the same tokens, in their order, at its end.
std::map<std::int64_t, std::int64_t> place_tokens(const std::vector<ShapeToken>& tokens, std::int64_t vocab) {
  std::map<std::int64_t, std::int64_t> places;
  for (const ShapeToken& token : tokens) places[token.id] = token.id;
  if (places.empty() || places.rbegin()->first < vocab) return places;
  std::int64_t next = vocab - static_cast<std::int64_t>(places.size());
  for (auto& [published, place] : places) place = next++;
  return places;
}

void add_tokenizer(const ModelShape& shape, std::int64_t vocab, Metadata& meta) {
  const auto places = place_tokens(shape.tokens, vocab);
  std::vector<std::string> texts(static_cast<std::size_t>(vocab));
  std::vector<std::int32_t> kinds(texts.size(), static_cast<std::int32_t>(TokenKind::kNormal));
  for (const ShapeToken& token : shape.tokens) {
    const std::int64_t id = places.at(token.id);
    texts[static_cast<std::size_t>(id)] = token.text;
    kinds[static_cast<std::size_t>(id)] = static_cast<std::int32_t>(TokenKind::kControl);
    meta.set(fmt::format("tokenizer.ggml.{}_token_id", token.role), MetaValue::u32(static_cast<std::uint32_t>(id)));
  }
  for (std::size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) continue;
    texts[id] = id < kBytes ? encode_alphabet(std::string(1, static_cast<char>(id)))
                            : made_up_word(static_cast<std::int64_t>(id) - kBytes);
  }
  meta.set("tokenizer.ggml.model", MetaValue::string("gpt2"));
  meta.set("tokenizer.ggml.pre", MetaValue::string(std::string(shape.pre)));
  meta.set("tokenizer.ggml.tokens", MetaValue::strings(std::move(texts)));
  meta.set("tokenizer.ggml.token_type", MetaValue::i32s(std::move(kinds)));
  meta.set("tokenizer.ggml.merges", MetaValue::strings({}));
}

Expected<void> check_override(std::string_view what, const std::optional<std::int64_t>& value, std::int64_t minimum,
                              std::int64_t maximum) {
  if (!value || (*value >= minimum && *value <= maximum)) return {};
  return Error{ErrorCode::kUsage, fmt::format("this shape cannot have {} {}", *value, what), "",
               fmt::format("{} to {}", minimum, maximum)};
}

/// Model keys of the configuration, with overrides; their GGUF names are the same for every architecture.
Expected<Metadata> model_metadata(const Architecture& architecture, const HfConfig& config,
                                  const ShapeOverrides& overrides) {
  DLLM_TRY(Metadata meta, architecture.metadata_from_hf(config));
  const auto put = [&](std::string_view tail, const std::optional<std::int64_t>& value) {
    if (value)
      meta.set(fmt::format("{}.{}", architecture.name, tail), MetaValue::u32(static_cast<std::uint32_t>(*value)));
  };
  put("block_count", overrides.layers);
  put("vocab_size", overrides.vocab);
  put("context_length", overrides.context);
  return meta;
}

Expected<bool> is_tied_shape(const HfConfig& config) {
  if (config.contains("weight_tying")) return config.boolean_or("weight_tying", false);
  return config.boolean_or("tie_word_embeddings", false);
}

}  // namespace

Expected<const ModelShape*> find_shape(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelShape& shape : model_shapes()) {
    if (shape.name == name || (!shape.alias.empty() && shape.alias == name)) return &shape;
    names.push_back(shape.name);
  }
  return Error{ErrorCode::kUsage, fmt::format("unknown shape '{}'", name), "",
               fmt::format("known: {}", fmt::join(names, ", "))};
}

namespace {

/// A shape's architecture and the metadata of a file, without tensors.
struct ShapeMetadata {
  const Architecture* architecture = nullptr;
  Metadata metadata;
  TensorFacts facts;

  Expected<ModelDesc> describe() const {
    return dllm::describe(*architecture, metadata, facts, nullptr, Log([](LogLevel, const std::string&) {}));
  }
};

Expected<ShapeMetadata> shape_metadata(const ModelShape& shape, const ShapeOverrides& overrides) {
  const auto specials = static_cast<std::int64_t>(shape.tokens.size());
  DLLM_CHECK_OK(check_override("layers", overrides.layers, 1, kMaxLayers));
  DLLM_CHECK_OK(check_override("tokens", overrides.vocab, kBytes + specials, kMaxSize));
  DLLM_CHECK_OK(check_override("positions", overrides.context, 1, kMaxSize));
  DLLM_TRY(const HfConfig config, HfConfig::parse(std::string(shape.config), fmt::format("shape {}", shape.name)));
  DLLM_TRY(const std::string hf_name, config.architecture());
  DLLM_TRY(const Architecture* const architecture, find_hf_architecture(hf_name));
  DLLM_TRY(const Metadata model, model_metadata(*architecture, config, overrides));
  DLLM_TRY(const auto vocab, model.integer(fmt::format("{}.vocab_size", architecture->name)));
  if (!vocab) return Error{ErrorCode::kInvalidFile, "the importer gives no vocab_size", std::string(shape.name), ""};
  DLLM_TRY(const bool tied, is_tied_shape(config));

  ShapeMetadata result{architecture, {}, {*vocab, std::numeric_limits<std::int64_t>::max(), !tied}};
  Metadata& meta = result.metadata;
  meta.set("general.architecture", MetaValue::string(std::string(architecture->name)));
  meta.set("general.type", MetaValue::string("model"));
  meta.set("general.name", MetaValue::string(fmt::format("{} (random weights)", shape.name)));
  for (const auto& [key, value] : model.entries()) meta.set(key, value);
  add_tokenizer(shape, *vocab, meta);
  return result;
}

}  // namespace

Expected<ModelDesc> shape_desc(const ModelShape& shape) {
  DLLM_TRY(const ShapeMetadata described, shape_metadata(shape, {}));
  return described.describe();
}

Expected<ModelSource> shape_source(const ModelShape& shape, const ShapeOverrides& overrides) {
  DLLM_TRY(ShapeMetadata described, shape_metadata(shape, overrides));
  DLLM_TRY(const ModelDesc desc, described.describe());
  ModelSource source;
  source.name = fmt::format("shape {}", shape.name);
  for (const WeightDecl& decl : described.architecture->build(desc, {1, 1}).weights)
    if (decl.required) source.tensors.push_back({decl.name, TensorType::kF32, decl.shape, {}, 0});
  source.metadata = std::move(described.metadata);
  source.metadata.set("general.size_label", MetaValue::string(size_label(source.tensors)));
  return source;
}

}  // namespace dllm
