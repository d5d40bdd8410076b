#include "app/cli/model_listing.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/cli/model_file.h"
#include "base/input_file.h"
#include "base/try.h"
#include "format/gguf.h"
#include "format/safetensors.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::int64_t> integer(const Metadata& metadata, const std::string& key) {
  const auto value = metadata.integer(key);
  return value && *value ? **value : std::optional<std::int64_t>();
}

/// "tiny-llada: 5 layers, width 128, 4 heads, vocabulary 768, context 512"
std::string describe_gguf(const Metadata& metadata, const std::string& architecture) {
  std::string text;
  if (const auto name = metadata.string("general.name"); name && *name) text = **name;
  const auto append = [&](const std::string& key, std::string_view form) {
    if (const auto value = integer(metadata, architecture + "." + key))
      text += (text.empty()                           ? ""
               : text.find(": ") == std::string::npos ? ": "
                                                      : ", ") +
              fmt::format(fmt::runtime(form), *value);
  };
  append("block_count", "{} layers");
  append("embedding_length", "width {}");
  append("attention.head_count", "{} heads");
  append("attention.head_count_kv", "{} K/V heads");
  append("feed_forward_length", "feed-forward {}");
  append("expert_count", "{} experts");
  append("vocab_size", "vocabulary {}");
  append("context_length", "context {}");
  return text;
}

ModelListing from_gguf(const GgufFile& file, const std::string& path) {
  ModelListing listing{.path = path, .format = fmt::format("GGUF v{}", file.version())};
  listing.metadata = file.metadata();
  if (const auto name = listing.metadata.string("general.architecture"); name && *name) listing.architecture = **name;
  listing.description = describe_gguf(listing.metadata, listing.architecture);
  for (const GgufTensor& t : file.tensors())
    listing.tensors.push_back({t.name, t.type, t.shape, t.data.size(), t.offset});
  return listing;
}

void flatten(const Json& json, const std::string& prefix, Metadata& metadata) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) flatten(value, name, metadata);
    MetaValue meta;
    if (value.is_boolean())
      meta = MetaValue::boolean(value.get<bool>());
    else if (value.is_number_integer())
      meta = {MetaType::kI64, MetaType::kBool, value.get<std::int64_t>()};
    else if (value.is_number())
      meta = {MetaType::kF64, MetaType::kBool, value.get<double>()};
    else if (value.is_string())
      meta = MetaValue::string(value.get<std::string>());
    else if (value.is_array())
      meta = MetaValue::string(value.dump(-1, ' ', false, Json::error_handler_t::replace));
    else
      continue;  // null says that the key is absent
    metadata.set(name, std::move(meta));
  }
}

Expected<void> read_config(const std::filesystem::path& path, ModelListing& listing) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  DLLM_TRY(const std::string text, read_input(path.string()));
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return Error{ErrorCode::kInvalidFile, "not a JSON object", path.string(), ""};
  flatten(config, "", listing.metadata);
  const auto names = config.find("architectures");
  if (names != config.end() && names->is_array() && !names->empty() && names->front().is_string())
    listing.architecture = names->front().get<std::string>();
  return {};
}

Expected<ModelListing> from_safetensors(const std::string& path, bool directory) {
  ModelListing listing{.path = path, .format = directory ? "Hugging Face directory" : "safetensors"};
  DLLM_TRY(const Safetensors file, Safetensors::open(path));
  for (const SafeTensor& t : file.tensors()) listing.tensors.push_back({t.name, t.type, t.shape, t.data.size(), {}});
  for (const UnreadTensor& t : file.unread()) listing.unread.push_back(t.why.what);
  if (directory) DLLM_CHECK_OK(read_config(std::filesystem::path(path) / "config.json", listing));
  return listing;
}

}  // namespace

Expected<ModelListing> list_model(const std::string& path) {
  if (path.empty()) {
    DLLM_TRY(const GgufFile file, open_gguf(path));
    return from_gguf(file, "embedded tiny-llada");
  }
  DLLM_TRY(const FileKind kind, file_kind(path));
  switch (kind) {
    case FileKind::kGguf: {
      DLLM_TRY(const GgufFile file, open_gguf(path));
      return from_gguf(file, path);
    }
    case FileKind::kSafetensors:
      return from_safetensors(path, false);
    case FileKind::kHfDirectory:
      return from_safetensors(path, true);
    case FileKind::kTokenizerJson:
      break;
  }
  return Error{ErrorCode::kInvalidFile, "neither a GGUF nor a safetensors file", path, ""};
}

}  // namespace dllm::app
