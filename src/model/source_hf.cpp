// A Hugging Face checkpoint as a model in GGUF terms: names, metadata and row order as llama.cpp's converter writes
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>

#include "base/log.h"
#include "base/try.h"
#include "model/adapter.h"
#include "model/architecture.h"
#include "model/describe.h"
#include "model/hf_class.h"
#include "model/hf_config.h"
#include "model/hf_description.h"
#include "model/hf_scaled.h"
#include "model/hf_text.h"
#include "model/model.h"
#include "model/source.h"
#include "model/tensor_check.h"
#include "model/token_map.h"

namespace dllm {
namespace {

std::string replace_placeholder(std::string pattern, std::string_view with) {
  if (const auto at = pattern.find("{}"); at != std::string::npos) pattern.replace(at, 2, with);
  return pattern;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
}

/// A parsed Hugging Face tensor name: "model.layers.{}.mlp.up_proj" + layer 3 + ".weight".
struct HfName {
  std::string pattern;
  std::string layer;   ///< digits; empty outside the layers
  std::string expert;  ///< digits; empty if there is no second number
  std::string suffix;  ///< ".weight", ".bias" or empty

  explicit HfName(std::string_view name) {
    for (std::string_view end : {".weight", ".bias"}) {
      if (!name.ends_with(end)) continue;
      suffix = end;
      name.remove_suffix(end.size());
    }
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t end = std::min(name.find('.', begin), name.size());
      const std::string_view part = name.substr(begin, end - begin);
      std::string* const number = !is_number(part) ? nullptr
                                  : layer.empty()  ? &layer
                                  : expert.empty() ? &expert
                                                   : nullptr;
      if (number != nullptr) *number = part;
      if (begin > 0) pattern += '.';
      pattern += number != nullptr ? std::string_view("{}") : part;
      begin = end + 1;
    }
  }
};

/// Renames tensors and sorts them in the order of the forward pass, whatever the order of files and shards.
class TensorTable {
 public:
  explicit TensorTable(const Architecture& architecture) {
    for (const TensorRename& rename : architecture.renames) {
      const bool layered = rename.hf.find("{}") != std::string::npos;
      if (layered) section_ = 1;
      entries_.emplace(rename.hf, Entry{rename.gguf, layered ? 1 : section_ * 2, static_cast<int>(entries_.size())});
    }
  }

  /// Errors: kUnsupported, for names that the architecture does not have.
  /// `mapped`: its bytes are a file's.
  Expected<void> add(const SafeTensor& tensor, bool mapped) {
    const HfName name(tensor.name);
    const auto found = entries_.find(name.pattern);
    if (found == entries_.end() || name.suffix.empty() != is_complete(found->second.gguf))
      return Error{ErrorCode::kUnsupported, "the architecture has no such tensor", tensor.name,
                   "running without it would be silently wrong"};
    const Entry& entry = found->second;
    const int layer = name.layer.empty() ? 0 : std::stoi(name.layer);
    std::string gguf = replace_placeholder(entry.gguf, std::to_string(layer)) + name.suffix;
    const Key key{entry.section, layer, entry.index, name.suffix};
    if (!name.expert.empty()) {
      Stack& stack = stacks_[key];
      stack.mapped = stack.mapped && mapped;
      return add_expert(tensor, std::stoi(name.expert), std::move(gguf), stack);
    }
    const auto [at, fresh] =
        ordered_.try_emplace(key, SourceTensor{std::move(gguf), tensor.type, tensor.shape, tensor.data, 0, mapped});
    if (fresh) return {};
    return Error{ErrorCode::kInvalidFile, fmt::format("another tensor becomes '{}' too", at->second.name), tensor.name,
                 ""};
  }

  /// Errors: kInvalidFile, if experts are missing.
  Expected<std::vector<SourceTensor>> take() {
    for (auto& [key, stack] : stacks_) {
      DLLM_TRY(SourceTensor tensor, stacked(stack));
      ordered_.emplace(key, std::move(tensor));
    }
    std::vector<SourceTensor> tensors;
    for (auto& [key, tensor] : ordered_) tensors.push_back(std::move(tensor));
    return tensors;
  }

 private:
  struct Entry {
    std::string gguf;
    int section;  ///< 0: before the layers, 1: in them, 2: after them
    int index;
  };
  using Key = std::tuple<int, int, int, std::string>;  ///< section, layer, index, suffix
  struct Stack {
    std::string gguf;
    bool mapped = true;  ///< all of them are
    std::map<int, SafeTensor> experts;
  };

  /// The Hugging Face name has no suffix; the GGUF name includes its own, or has none either.
  static bool is_complete(std::string_view gguf) {
    return gguf.ends_with(".bias") || gguf.ends_with(".weight") || gguf.ends_with(".scale") ||
           gguf.ends_with("_conv_base");
  }

  static Expected<void> add_expert(const SafeTensor& tensor, int expert, std::string gguf, Stack& stack) {
    stack.gguf = std::move(gguf);
    const SafeTensor& first = stack.experts.try_emplace(expert, tensor).first->second;
    const SafeTensor& any = stack.experts.begin()->second;
    if (first.name != tensor.name)
      return Error{ErrorCode::kInvalidFile, fmt::format("'{}' is the same expert", first.name), tensor.name, ""};
    if (any.type == tensor.type && any.shape == tensor.shape) return {};
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} {} differs from {} {} of '{}', and experts are alike", codec(tensor.type).name,
                             to_string(tensor.shape), codec(any.type).name, to_string(any.shape), any.name),
                 tensor.name, ""};
  }

  static Expected<SourceTensor> stacked(const Stack& stack) {
    const SafeTensor& any = stack.experts.begin()->second;
    SourceTensor tensor{stack.gguf, any.type, any.shape, {}, 0, stack.mapped};
    tensor.shape.push_back(static_cast<std::int64_t>(stack.experts.size()));
    for (const auto& [number, expert] : stack.experts) {
      if (number != static_cast<int>(tensor.parts.size()))
        return Error{ErrorCode::kInvalidFile, fmt::format("expert {} is missing", tensor.parts.size()), stack.gguf,
                     "the download is incomplete"};
      tensor.parts.push_back(expert.data);
    }
    return tensor;
  }

  std::map<std::string, Entry> entries_;
  int section_ = 0;
  std::map<Key, SourceTensor> ordered_;
  std::map<Key, Stack> stacks_;
};

Expected<std::vector<SourceTensor>> rename_tensors(const Architecture& architecture, const Safetensors& files,
                                                   const ScaledTensors& scaled) {
  TensorTable table(architecture);
  const auto is_read = [&](const std::string& name) {
    return !is_left_out(architecture, name) && !scaled.parts.contains(name) &&
           !is_token_map(architecture.token_map, name);
  };
  for (const SafeTensor& tensor : files.tensors())
    if (is_read(tensor.name)) DLLM_CHECK_OK(table.add(tensor, true));
  for (const SafeTensor& tensor : scaled.tensors) DLLM_CHECK_OK(table.add(tensor, false));
  for (const UnreadTensor& tensor : files.unread())
    if (is_read(tensor.name)) return tensor.why;
  return table.take();
}

/// `weight_tying` is LLaDA's name; if it is present, transformers' own flag is only a leftover default.
Expected<bool> is_tied(const Architecture& architecture, const HfConfig& config) {
  if (config.contains("weight_tying")) return config.boolean_or("weight_tying", false);
  if (const auto text = config.json().find("text_config");
      !config.contains("tie_word_embeddings") && text != config.json().end() && text->is_object()) {
    const HfConfig own = HfConfig::of(*text, config.file() + ", text_config");
    return own.boolean_or("tie_word_embeddings", true);
  }
  return config.boolean_or("tie_word_embeddings", architecture.tied_by_default);
}

Expected<void> drop_tied_head(const Architecture& architecture, const HfConfig& config, ModelSource& source) {
  if (architecture.build_context) return {};  // a drafter has its target's head, or its own
  DLLM_TRY(const bool tied, is_tied(architecture, config));
  const SourceTensor* head = source.find("output.weight");
  if (!tied && head == nullptr)
    return Error{ErrorCode::kInvalidFile, "the head is missing, and config.json does not tie it to the embedding",
                 source.name, "the download is incomplete, or 'tie_word_embeddings' should be true"};
  if (!tied || head == nullptr) return {};
  const SourceTensor* table = source.find("token_embd.weight");
  if (table == nullptr || head->type != table->type || head->shape != table->shape ||
      !std::ranges::equal(head->data, table->data))
    return Error{ErrorCode::kInvalidFile,
                 "config.json ties the head to the embedding, but the checkpoint has another head", source.name,
                 "one of the two is wrong; untie it in config.json if the head was trained"};
  std::erase_if(source.tensors, [](const SourceTensor& tensor) { return tensor.name == "output.weight"; });
  return {};
}

Expected<void> mark_permuted(const Architecture& architecture, ModelSource& source) {
  if (!architecture.permute_qk) return {};
  for (const auto& [part, key] :
       {std::pair(".attn_q.", "attention.head_count"), std::pair(".attn_k.", "attention.head_count_kv")}) {
    DLLM_TRY(const auto heads, source.metadata.integer(fmt::format("{}.{}", architecture.name, key)));
    for (SourceTensor& tensor : source.tensors) {
      if (tensor.name.find(part) == std::string::npos) continue;
      const std::int64_t rows = tensor.shape.size() > 1 ? row_count(tensor.shape) : tensor.shape.front();
      if (!heads || *heads < 1 || rows % (2 * *heads) != 0)
        return Error{ErrorCode::kInvalidFile,
                     fmt::format("{} rows cannot be {} heads of an even size", rows, heads.value_or(0)),
                     fmt::format("{}, {}", source.name, tensor.name), ""};
      tensor.permute_heads = *heads;
    }
  }
  return {};
}

/// `general.file_type` of the checkpoint as is, by the type of its first matrix.
std::uint32_t file_type(const std::vector<SourceTensor>& tensors) {
  for (const SourceTensor& tensor : tensors) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.type == TensorType::kF16) return 1;
    return tensor.type == TensorType::kBF16 ? 32 : 0;
  }
  return 0;
}

/// The repository's name without its owner; `_name_or_path` may also be a path on the author's machine.
Expected<std::string> model_name(const HfConfig& config, const std::string& directory) {
  DLLM_TRY(const std::string origin, config.string_or("_name_or_path", ""));
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const fs::path& path : {fs::path(origin), fs::absolute(directory, ignored)}) {
    const fs::path normal = path.lexically_normal();
    const fs::path name = normal.has_filename() ? normal.filename() : normal.parent_path().filename();
    if (!name.empty() && name != ".") return name.string();
  }
  return std::string("model");
}

Expected<void> set_thinking_default(const Architecture& architecture, Metadata& meta) {
  if (architecture.thinking_default.empty()) return {};
  for (const std::string_view key : {kChatTemplateKey, kToolTemplateKey}) {
    DLLM_TRY(const auto text, meta.string(key));
    if (text && text->find("enable_thinking") != std::string::npos)
      meta.set(std::string(key), MetaValue::string(std::string(architecture.thinking_default) + *text));
  }
  return {};
}

Expected<void> set_metadata(const Architecture& architecture, const HfConfig& config, ModelSource& source) {
  Metadata& meta = source.metadata;
  DLLM_TRY(std::string name, model_name(config, source.name));
  meta.set("general.architecture", MetaValue::string(std::string(architecture.name)));
  meta.set("general.type", MetaValue::string("model"));
  meta.set("general.name", MetaValue::string(std::move(name)));
  meta.set("general.size_label", MetaValue::string(size_label(source.tensors)));
  DLLM_TRY(const Metadata model, architecture.metadata_from_hf(config));
  for (const auto& [key, value] : model.entries()) {
    if (key.ends_with(".vocab_size")) meta.set("general.file_type", MetaValue::u32(file_type(source.tensors)));
    if (!key.starts_with("tokenizer.")) meta.set(key, value);
  }
  meta.set("general.quantization_version", MetaValue::u32(2));

  if (architecture.build_context) {  // a drafter has its target's tokens
    for (const auto& [key, value] : model.entries())
      if (key.starts_with("tokenizer.")) meta.set(key, value);
    return {};
  }
  const SourceTensor* embedding = source.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    return Error{ErrorCode::kInvalidFile, "the checkpoint has no embedding matrix", source.name, ""};
  ModelDesc defaults;
  architecture.set_defaults(defaults);
  DLLM_TRY(const auto mask, model.integer("tokenizer.ggml.mask_token_id"));
  if (mask) defaults.mask = static_cast<TokenId>(*mask);
  DLLM_CHECK_OK(add_hf_text(source.name, config, {embedding->shape[1], defaults.mask}, meta, source.warnings));
  if (architecture.hf_warning) {
    DLLM_TRY(std::string warning, architecture.hf_warning(config));
    if (!warning.empty()) source.warnings.push_back(std::move(warning));
  }
  DLLM_CHECK_OK(set_thinking_default(architecture, meta));
  // What the architecture says about the tokenizer overrides the tokenizer's files.
  for (const auto& [key, value] : model.entries())
    if (key.starts_with("tokenizer.")) meta.set(key, value);
  return set_hf_lengths(config, meta);
}

/// The checks of Model::load(), before gigabytes are converted.
Expected<void> check_model(const Architecture& architecture, const ModelSource& source) {
  const TensorFacts facts{source.find("token_embd.weight")->shape[1], static_cast<std::int64_t>(source.tensors.size()),
                          source.find("output.weight") != nullptr};
  DLLM_TRY(auto spec, Tokenizer::spec_from_gguf(source.metadata));
  DLLM_TRY(const auto tokenizer, Tokenizer::create(std::move(spec)));
  const Log silent([](LogLevel, const std::string&) {});
  DLLM_TRY(const ModelDesc desc, describe(architecture, source.metadata, facts, &tokenizer, silent));
  DLLM_TRY(auto tensors, split_fused(source.tensors, desc.heads * desc.head_dim, desc.kv_heads * desc.head_dim));
  DLLM_TRY(const Adapter adapter, take_draft_adapter(source.metadata, tensors));
  const Graph graph = architecture.build(desc, {1, 1});
  DLLM_CHECK_OK(check_adapters(graph, {&adapter, 1}));
  return check_tensors(graph, tensors);
}

/// Keeps the bytes of a checkpoint's tensors alive.
struct CheckpointBytes {
  std::shared_ptr<const Safetensors> files;
  ScaledTensors scaled;
  std::vector<GeneratedTensor> generated;
  std::vector<float> token_map;
  std::shared_ptr<const void> adapter;
};

Expected<void> add_generated(const Architecture& architecture, const HfConfig& config, CheckpointBytes& bytes,
                             std::vector<SourceTensor>& tensors) {
  if (architecture.fold) {
    DLLM_TRY(bytes.generated, architecture.fold(config, *bytes.files));
  } else if (architecture.generate) {
    DLLM_TRY(bytes.generated, architecture.generate(config));
  }
  for (const GeneratedTensor& tensor : bytes.generated)
    tensors.push_back({tensor.name, TensorType::kF32,
                       tensor.shape.empty() ? Shape{static_cast<std::int64_t>(tensor.values.size())} : tensor.shape,
                       std::as_bytes(std::span(tensor.values))});
  return {};
}

}  // namespace

Expected<ModelSource> source_from_hf(const std::string& directory) {
  ModelSource source;
  source.name = directory;
  DLLM_TRY(const HfConfig config, read_hf_config(directory));
  DLLM_TRY(const Architecture* architecture, find_hf_model(config));
  DLLM_TRY(auto files, Safetensors::open(directory));
  const auto owner = std::make_shared<CheckpointBytes>();
  owner->files = std::make_shared<const Safetensors>(std::move(files));
  source.owner = owner;
  source.files = owner->files->files();
  if (!architecture->fold) {
    DLLM_TRY(owner->scaled, decode_scaled(*owner->files, config,
                                          [&](std::string_view name) { return is_left_out(*architecture, name); }));
    DLLM_TRY(source.tensors, rename_tensors(*architecture, *owner->files, owner->scaled));
  }
  DLLM_CHECK_OK(add_generated(*architecture, config, *owner, source.tensors));
  DLLM_TRY(owner->token_map, read_token_map(architecture->token_map, *owner->files));
  if (const auto& map = owner->token_map; !map.empty())
    source.tensors.push_back({std::string(architecture->token_map),
                              TensorType::kF32,
                              {static_cast<std::int64_t>(map.size())},
                              std::as_bytes(std::span(map))});
  DLLM_CHECK_OK(drop_tied_head(*architecture, config, source));
  DLLM_CHECK_OK(set_metadata(*architecture, config, source));
  DLLM_CHECK_OK(mark_permuted(*architecture, source));
  ModelDesc defaults;
  architecture->set_defaults(defaults);
  if (defaults.has_mode(DecodingMode::kDiffusion)) {
    DLLM_TRY(Adapter adapter, add_draft_adapter(directory, *architecture, source.metadata, source.tensors));
    source.files.insert(source.files.end(), adapter.files.begin(), adapter.files.end());
    owner->adapter = std::move(adapter.owner);
  }
  if (architecture->build_context) {
    DLLM_CHECK_OK(source.check());
    return source;  // complete_drafter() adds what the target has; the rest is checked then
  }
  if (auto sound = check_model(*architecture, source); !sound) {
    Error error = std::move(sound).error();
    error.where = error.where.empty() ? directory : directory + ", " + error.where;
    return error;
  }
  DLLM_CHECK_OK(source.check());
  return source;
}

}  // namespace dllm
