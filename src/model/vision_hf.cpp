// The vision part of a Hugging Face checkpoint in the terms of llama.cpp's files for projectors of the kind "gemma4v".
#include "model/vision_hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/try.h"
#include "format/safetensors.h"
#include "model/hf_config.h"
#include "model/key_reader.h"
#include "model/vision.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

/// Prefixes of DiffusionGemma's and of Gemma 4's checkpoints.
constexpr std::string_view kTowerPrefixes[] = {"model.encoder.vision_tower.", "model.vision_tower."};
constexpr std::string_view kProjectionNames[] = {"model.encoder.embed_vision.embedding_projection.weight",
                                                 "model.embed_vision.embedding_projection.weight"};

Error bad_vision(const HfConfig& config, std::string what, ErrorCode code = ErrorCode::kInvalidFile) {
  return {code, std::move(what), config.file(), ""};
}

Expected<HfConfig> vision_json(const fs::path& path) {
  DLLM_TRY(const std::string text, read_input(path.string()));
  return HfConfig::parse(text, path.string());
}

Expected<std::optional<HfConfig>> vision_config(const HfConfig& config) {
  if (!config.contains("vision_config")) return std::optional<HfConfig>();
  const nlohmann::json& own = config.json()["vision_config"];
  if (!own.is_object()) return bad_vision(config, "'vision_config' is no object");
  return std::optional(HfConfig::of(own, config.file() + ", vision_config"));
}

/// Switches that would change the computation.
Expected<void> check_vision_switches(const HfConfig& vision) {
  DLLM_CHECK_OK(vision.expect("model_type", "gemma4_vision"));
  DLLM_CHECK_OK(vision.expect("hidden_activation", "gelu_pytorch_tanh"));
  DLLM_CHECK_OK(vision.expect("attention_bias", false));
  DLLM_CHECK_OK(vision.expect("use_clipped_linears", false));
  if (!vision.contains("rope_parameters")) return {};
  const nlohmann::json& rope = vision.json()["rope_parameters"];
  if (!rope.is_object()) return bad_vision(vision, "'rope_parameters' is no object");
  const HfConfig own = HfConfig::of(rope, vision.file() + ", rope_parameters");
  DLLM_TRY(const double theta, own.number_or("rope_theta", kVisionRopeTheta));
  if (theta != static_cast<double>(kVisionRopeTheta))
    return bad_vision(own, fmt::format("'rope_theta' is {}", theta), ErrorCode::kUnsupported);
  return {};
}

/// The processor's limit of embeddings per image: in processor_config.json or preprocessor_config.json.
Expected<std::int64_t> most_soft_tokens(const fs::path& directory, std::int64_t fallback) {
  for (const char* const name : {"processor_config.json", "preprocessor_config.json"}) {
    std::error_code ignored;
    if (!fs::exists(directory / name, ignored)) continue;
    DLLM_TRY(const HfConfig processor, vision_json(directory / name));
    HfConfig images = processor;
    if (processor.contains("image_processor") && processor.json()["image_processor"].is_object())
      images = HfConfig::of(processor.json()["image_processor"], processor.file() + ", image_processor");
    DLLM_TRY(const std::int64_t most, images.integer_or("max_soft_tokens", fallback));
    if (most < 1 || most > 4096) return bad_vision(images, fmt::format("'max_soft_tokens' is {}", most));
    return most;
  }
  return fallback;
}

Expected<void> set_vision_metadata(const fs::path& directory, const HfConfig& config, const HfConfig& vision,
                                   Metadata& meta) {
  const auto u32 = [](std::int64_t v) { return MetaValue::u32(static_cast<std::uint32_t>(v)); };
  const auto copy = [&](std::string_view key, std::string_view tail, std::int64_t fallback) -> Expected<std::int64_t> {
    DLLM_TRY(const std::int64_t value, vision.integer_or(key, fallback));
    if (value < 1 || value > kMaxModelDim) return bad_vision(vision, fmt::format("'{}' is {}", key, value));
    meta.set(fmt::format("clip.vision.{}", tail), u32(value));
    return value;
  };
  meta.set("general.architecture", MetaValue::string("clip"));
  meta.set("general.type", MetaValue::string("mmproj"));
  meta.set("clip.has_vision_encoder", MetaValue::boolean(true));
  meta.set("clip.vision.projector_type", MetaValue::string("gemma4v"));
  meta.set("clip.vision.image_size", u32(224));  // llama.cpp asks for it and does not use it
  DLLM_TRY(const std::int64_t width, copy("hidden_size", "embedding_length", 768));
  DLLM_CHECK_OK(copy("intermediate_size", "feed_forward_length", 3072));
  DLLM_CHECK_OK(copy("num_hidden_layers", "block_count", 16));
  DLLM_TRY(const std::int64_t heads, copy("num_attention_heads", "attention.head_count", 12));
  DLLM_TRY(const std::int64_t kv_heads, vision.integer_or("num_key_value_heads", heads));
  if (kv_heads != heads)
    return bad_vision(vision, fmt::format("{} heads share {} of keys", heads, kv_heads), ErrorCode::kUnsupported);
  DLLM_CHECK_OK(copy("patch_size", "patch_size", 16));
  DLLM_CHECK_OK(copy("pooling_kernel_size", "projector.scale_factor", 3));
  DLLM_TRY(const double eps, vision.number_or("rms_norm_eps", 1e-6));
  meta.set("clip.vision.attention.layer_norm_epsilon", MetaValue::f32(static_cast<float>(eps)));
  meta.set("clip.vision.image_mean", MetaValue::f32s(std::vector<float>(3, 0.f)));
  meta.set("clip.vision.image_std", MetaValue::f32s(std::vector<float>(3, 1.f)));
  meta.set("clip.use_gelu", MetaValue::boolean(true));
  DLLM_TRY(const std::int64_t tokens, most_soft_tokens(directory, VisionDesc().most_tokens));
  meta.set("clip.vision.max_soft_tokens", u32(tokens));
  if (config.contains("text_config") && config.json()["text_config"].is_object()) {
    const HfConfig text = HfConfig::of(config.json()["text_config"], config.file() + ", text_config");
    DLLM_TRY(const std::int64_t projected, text.integer_or("hidden_size", width));
    meta.set("clip.vision.projection_dim", u32(projected));
  }
  return {};
}

/// A tensor's name in llama.cpp's files; empty: the tower has no such tensor.
std::string vision_gguf_name(std::string_view name) {
  static const std::map<std::string_view, std::string_view> whole = {
      {"patch_embedder.input_proj.weight", "v.patch_embd.weight"},
      {"patch_embedder.position_embedding_table", "v.position_embd.weight"},
      {"std_bias", "v.std_bias"},
      {"std_scale", "v.std_scale"}};
  static const std::map<std::string_view, std::string_view> of_layer = {
      {"input_layernorm", "ln1"},
      {"self_attn.q_proj.linear", "attn_q"},
      {"self_attn.k_proj.linear", "attn_k"},
      {"self_attn.v_proj.linear", "attn_v"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"self_attn.o_proj.linear", "attn_out"},
      {"post_attention_layernorm", "attn_post_norm"},
      {"pre_feedforward_layernorm", "ln2"},
      {"mlp.gate_proj.linear", "ffn_gate"},
      {"mlp.up_proj.linear", "ffn_up"},
      {"mlp.down_proj.linear", "ffn_down"},
      {"post_feedforward_layernorm", "ffn_post_norm"}};
  if (const auto found = whole.find(name); found != whole.end()) return std::string(found->second);
  constexpr std::string_view kLayers = "encoder.layers.", kWeight = ".weight";
  if (!name.starts_with(kLayers) || !name.ends_with(kWeight)) return "";
  name.remove_prefix(kLayers.size());
  name.remove_suffix(kWeight.size());
  const std::size_t dot = std::min(name.find('.'), name.size());
  const auto part = of_layer.find(name.substr(std::min(dot + 1, name.size())));
  const std::string_view layer = name.substr(0, dot);
  const bool number = !layer.empty() && layer.find_first_not_of("0123456789") == std::string_view::npos;
  return part == of_layer.end() || !number ? "" : fmt::format("v.blk.{}.{}.weight", layer, part->second);
}

/// The values of a patch in llama.cpp's order: all of a colour, line by line, where the checkpoint has the three
/// colours of each pixel next to each other.
std::vector<std::byte> colours_apart(const SafeTensor& tensor, std::int64_t pixels) {
  const auto size = static_cast<std::size_t>(codec(tensor.type).row_bytes(1));
  std::vector<std::byte> out(tensor.data.size());
  const auto count = static_cast<std::size_t>(pixels);
  const std::size_t rows = tensor.data.size() / (3 * count * size);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t pixel = 0; pixel < count; ++pixel)
      for (std::size_t colour = 0; colour < 3; ++colour)
        std::memcpy(out.data() + ((row * 3 + colour) * count + pixel) * size,
                    tensor.data.data() + ((row * count + pixel) * 3 + colour) * size, size);
  return out;
}

/// What keeps the tensors' bytes alive.
struct VisionBytes {
  std::shared_ptr<const Safetensors> files;
  std::vector<std::vector<std::byte>> reordered;
};

Expected<void> add_vision_tensor(const SafeTensor& tensor, std::string name, std::int64_t patch, VisionBytes& bytes,
                                 ModelSource& source) {
  SourceTensor out{std::move(name), tensor.type, tensor.shape, tensor.data, 0, true};
  if (out.name == "v.patch_embd.weight") {
    if (out.shape.size() != 2 || out.shape[0] != 3 * patch * patch)
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("the shape {} is not that of patches of {} pixels a side", to_string(out.shape), patch),
                   tensor.name, ""};
    bytes.reordered.push_back(colours_apart(tensor, patch * patch));
    out.data = bytes.reordered.back();
    out.mapped = false;
    out.shape = {patch, patch, 3, tensor.shape[1]};
  }
  source.tensors.push_back(std::move(out));
  return {};
}

/// The name without the tower's prefix; nullopt: the tensor is another part's.
std::optional<std::string_view> in_tower(std::string_view name) {
  for (const std::string_view prefix : kTowerPrefixes)
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return {};
}

Expected<std::vector<SourceTensor>> ordered(std::vector<SourceTensor> tensors) {
  const auto key = [](const SourceTensor& tensor) {
    const std::string_view name = tensor.name;
    constexpr std::string_view kBlock = "v.blk.";
    const bool layered = name.starts_with(kBlock);
    const int layer = layered ? std::stoi(std::string(name.substr(kBlock.size(), 9))) : -1;
    return std::tuple(name.starts_with("mm."), layer, tensor.name);
  };
  std::ranges::sort(tensors, {}, key);
  for (std::size_t i = 1; i < tensors.size(); ++i)
    if (tensors[i].name == tensors[i - 1].name)
      return Error{ErrorCode::kInvalidFile, "two tensors become this one", tensors[i].name, ""};
  return tensors;
}

}  // namespace

Expected<ModelSource> vision_from_hf(const std::string& directory) {
  DLLM_TRY(const HfConfig config, vision_json(fs::path(directory) / "config.json"));
  DLLM_TRY(const auto vision, vision_config(config));
  if (!vision) return bad_vision(config, "the model has no vision tower ('vision_config')");
  DLLM_CHECK_OK(check_vision_switches(*vision));
  ModelSource source{.name = directory, .metadata = {}, .tensors = {}, .owner = nullptr};
  DLLM_CHECK_OK(set_vision_metadata(directory, config, *vision, source.metadata));
  DLLM_TRY(const std::int64_t patch, vision->integer_or("patch_size", 16));
  DLLM_TRY(Safetensors files, Safetensors::open(directory));
  auto bytes = std::make_shared<VisionBytes>();
  bytes->files = std::make_shared<const Safetensors>(std::move(files));
  bytes->reordered.reserve(1);
  for (const SafeTensor& tensor : bytes->files->tensors()) {
    std::string name;
    if (const auto own = in_tower(tensor.name)) {
      name = vision_gguf_name(*own);
      if (name.empty())
        return Error{ErrorCode::kUnsupported, "the vision tower has no such tensor", tensor.name,
                     "running without it would be silently wrong"};
    } else if (std::ranges::find(kProjectionNames, tensor.name) != std::end(kProjectionNames)) {
      name = "mm.input_projection.weight";
    }
    if (!name.empty()) DLLM_CHECK_OK(add_vision_tensor(tensor, std::move(name), patch, *bytes, source));
  }
  if (source.tensors.empty())
    return Error{ErrorCode::kInvalidFile, "the checkpoint has no tensors of a vision tower", directory, ""};
  DLLM_TRY(source.tensors, ordered(std::move(source.tensors)));
  source.files = bytes->files->files();
  source.owner = std::move(bytes);
  return source;
}

}  // namespace dllm
