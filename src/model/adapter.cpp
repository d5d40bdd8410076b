#include "model/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/parse_text.h"
#include "base/try.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/hf_text.h"
#include "model/peft_config.h"

namespace dllm {
namespace {

constexpr const char* kDraftFolder = "linear_spec_lora";
constexpr const char* kConfigFile = "adapter_config.json";

/// The two halves of each adapted matrix, as they are found.
using Halves = std::map<std::string, std::pair<std::optional<SourceTensor>, std::optional<SourceTensor>>>;

Expected<std::vector<AdapterPart>> whole_parts(Halves halves, const std::string& name) {
  std::vector<AdapterPart> parts;
  for (auto& [weight, pair] : halves) {
    if (!pair.first || !pair.second)
      return Error{ErrorCode::kInvalidFile, fmt::format("{} is missing", pair.first ? "B" : "A"),
                   fmt::format("{}, {}", name, weight), "the file is cut"};
    if (pair.first->shape.size() != 2 || pair.second->shape.size() != 2)
      return Error{ErrorCode::kInvalidFile, "A and B are not matrices", fmt::format("{}, {}", name, weight), ""};
    parts.push_back({weight, 1.f, std::move(*pair.first), std::move(*pair.second)});
    parts.back().a.name = weight + ".lora_a", parts.back().b.name = weight + ".lora_b";
  }
  if (parts.empty()) return Error{ErrorCode::kInvalidFile, "no pair of matrices A and B is in it", name, ""};
  return parts;
}

/// alpha / rank is the scale of LoRA's authors.
void set_scale(std::vector<AdapterPart>& parts, double alpha, double factor) {
  for (AdapterPart& part : parts)
    part.scale = static_cast<float>(factor * alpha / static_cast<double>(part.a.shape[1]));
}

Expected<Adapter> adapter_from_gguf(const AdapterRequest& request, const Architecture& architecture) {
  DLLM_TRY(auto opened, GgufFile::open(request.path));
  const auto file = std::make_shared<const GgufFile>(std::move(opened));
  const Metadata& meta = file->metadata();
  for (const auto& [key, wanted] : {std::pair<const char*, std::string_view>{"general.type", "adapter"},
                                    {"adapter.type", "lora"},
                                    {"general.architecture", architecture.name}}) {
    DLLM_TRY(const auto found, meta.string(key));
    if (!found || *found != wanted)
      return Error{ErrorCode::kInvalidFile, fmt::format("the key is '{}', not '{}'", found.value_or(""), wanted),
                   fmt::format("{}, {}", request.path, key), "give a LoRA adapter of this model"};
  }
  // Others might change what is computed: activated LoRA acts only after certain tokens.
  for (const auto& [key, value] : meta.entries())
    if (key.starts_with("adapter.") && key != "adapter.type" && key != "adapter.lora.alpha" &&
        key != "adapter.lora.task_name" && key != "adapter.lora.prompt_prefix")
      return Error{ErrorCode::kUnsupported, "this key of an adapter is not supported",
                   fmt::format("{}, {}", request.path, key), ""};
  Halves halves;
  for (const GgufTensor& tensor : file->tensors()) {
    const bool a = tensor.name.ends_with(".lora_a");
    if (!a && !tensor.name.ends_with(".lora_b"))
      return Error{ErrorCode::kUnsupported, "a tensor that is neither A nor B of a matrix",
                   fmt::format("{}, {}", request.path, tensor.name), ""};
    auto& pair = halves[tensor.name.substr(0, tensor.name.size() - 7)];
    (a ? pair.first : pair.second) = SourceTensor{tensor.name, tensor.type, tensor.shape, tensor.data, 0, true};
  }
  Adapter adapter{request.path, request.drafts_only, {}, file, {file->shared_file()}};
  DLLM_TRY(adapter.parts, whole_parts(std::move(halves), request.path));
  DLLM_TRY(const auto alpha, meta.number("adapter.lora.alpha"));
  if (alpha && *alpha != 0) {
    set_scale(adapter.parts, *alpha, static_cast<double>(request.scale));
  } else {
    for (AdapterPart& part : adapter.parts) part.scale = request.scale;  // llama.cpp's rule
  }
  return adapter;
}

/// "model.layers.3.self_attn.q_proj" as GGUF has it; empty: the architecture has no such matrix.
std::string gguf_weight(const Architecture& architecture, std::string_view module) {
  std::string pattern, layer;
  for (std::size_t begin = 0; begin <= module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    const bool number = layer.empty() && !part.empty() &&
                        std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; });
    if (number) layer = part;
    pattern += (begin > 0 ? "." : "") + (number ? std::string("{}") : std::string(part));
    begin = end + 1;
  }
  const auto rename = std::ranges::find(architecture.renames, pattern, &TensorRename::hf);
  if (rename == architecture.renames.end()) return "";
  std::string name = rename->gguf;
  if (const auto at = name.find("{}"); at != std::string::npos) name.replace(at, 2, layer);
  return name + ".weight";
}

Expected<Adapter> adapter_from_peft(const AdapterRequest& request, const Architecture& architecture, std::int64_t heads,
                                    std::int64_t kv_heads, std::optional<double> scale) {
  const std::string path = (std::filesystem::path(request.path) / "adapter_model.safetensors").string();
  DLLM_TRY(auto opened, Safetensors::open(path));
  const auto files = std::make_shared<const Safetensors>(std::move(opened));
  if (!files->unread().empty()) return files->unread().front().why;
  Halves halves;
  std::map<std::string, std::string> modules;  // of the weights
  for (const SafeTensor& tensor : files->tensors()) {
    std::string_view module = tensor.name;
    if (module.starts_with("base_model.model.")) module.remove_prefix(17);
    const std::size_t a = module.find(".lora_A."), found = std::min(a, module.find(".lora_B."));
    const std::string weight =
        found == std::string_view::npos ? "" : gguf_weight(architecture, module.substr(0, found));
    if (weight.empty() || !tensor.name.ends_with(".weight"))
      return Error{ErrorCode::kUnsupported, "the architecture has no matrix that this belongs to",
                   fmt::format("{}, {}", path, tensor.name), ""};
    modules.emplace(weight, module.substr(0, found));
    SourceTensor half{tensor.name, tensor.type, tensor.shape, tensor.data, 0, true};
    if (a != std::string_view::npos) {
      halves[weight].first = std::move(half);
      continue;
    }
    // The rows of B are those of the matrix, whose order may be llama.cpp's.
    if (architecture.permute_qk && weight.find(".attn_q.") != std::string::npos) half.permute_heads = heads;
    if (architecture.permute_qk && weight.find(".attn_k.") != std::string::npos) half.permute_heads = kv_heads;
    halves[weight].second = std::move(half);
  }
  Adapter adapter{request.path, request.drafts_only, {}, files, files->files()};
  DLLM_TRY(adapter.parts, whole_parts(std::move(halves), path));
  if (scale) {
    for (AdapterPart& part : adapter.parts) part.scale = request.scale * static_cast<float>(*scale);
    return adapter;
  }
  DLLM_TRY(const std::string text, read_hf_file(request.path, kConfigFile, true));
  DLLM_TRY(const HfConfig json, HfConfig::parse(text, (std::filesystem::path(request.path) / kConfigFile).string()));
  DLLM_TRY(const PeftConfig config, PeftConfig::read(json));
  for (AdapterPart& part : adapter.parts) {
    DLLM_TRY(const double own, config.scale_of(modules.at(part.weight), part.a.shape[1]));
    part.scale = static_cast<float>(own * static_cast<double>(request.scale));
  }
  return adapter;
}

}  // namespace

Expected<AdapterRequest> parse_adapter_request(std::string_view text, bool drafts_only) {
  AdapterRequest request{std::string(text), 1.f, drafts_only};
  if (const auto colon = text.rfind(':'); colon != std::string_view::npos && colon + 1 < text.size()) {
    // Else the colon is part of the path.
    if (const auto scale = parse_float(text.substr(colon + 1))) {
      request.path = text.substr(0, colon);
      request.scale = *scale;
    }
  }
  if (request.path.empty() || !std::isfinite(request.scale))
    return Error{ErrorCode::kUsage, fmt::format("'{}' is no adapter with a scale", text),
                 drafts_only ? "--lora-draft" : "--lora", "give FILE or FILE:SCALE"};
  return request;
}

Expected<Adapter> open_adapter(const AdapterRequest& request, const Architecture& architecture, std::int64_t heads,
                               std::int64_t kv_heads) {
  std::error_code ignored;
  return std::filesystem::is_directory(request.path, ignored)
             ? adapter_from_peft(request, architecture, heads, kv_heads, std::nullopt)
             : adapter_from_gguf(request, architecture);
}

Expected<Adapter> take_draft_adapter(const Metadata& metadata, std::vector<SourceTensor>& tensors) {
  Adapter adapter{"draft adapter", true, {}};
  Halves halves;
  for (const SourceTensor& tensor : tensors) {
    if (!tensor.name.starts_with(kDraftAdapter)) continue;
    const bool a = tensor.name.ends_with(".lora_a");
    auto& pair = halves[tensor.name.substr(kDraftAdapter.size(), tensor.name.size() - kDraftAdapter.size() - 7)];
    (a ? pair.first : pair.second) = tensor;
  }
  if (halves.empty()) return adapter;
  std::erase_if(tensors, [](const SourceTensor& tensor) { return tensor.name.starts_with(kDraftAdapter); });
  DLLM_TRY(adapter.parts, whole_parts(std::move(halves), adapter.name));
  DLLM_TRY(const auto scale, metadata.number(kDraftAdapterScale));
  if (!scale || !std::isfinite(static_cast<float>(*scale)))
    return Error{ErrorCode::kInvalidFile, "the file has a draft adapter and no scale for it",
                 std::string(kDraftAdapterScale), ""};
  for (AdapterPart& part : adapter.parts) {
    part.scale = static_cast<float>(*scale);
    for (SourceTensor* half : {&part.a, &part.b}) half->name.insert(0, kDraftAdapter);
  }
  return adapter;
}

Expected<Adapter> add_draft_adapter(const std::string& directory, const Architecture& architecture, Metadata& metadata,
                                    std::vector<SourceTensor>& tensors) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(directory) / kDraftFolder;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return Adapter{};
  // Without a configuration the scale is the one that the published reference has in its code: 512 / 128.
  const std::optional<double> published = fs::exists(folder / kConfigFile, ignored) ? std::nullopt : std::optional(4.0);
  DLLM_TRY(Adapter adapter, adapter_from_peft({folder.string(), 1.f, true}, architecture, 0, 0, published));
  for (AdapterPart& part : adapter.parts) {
    if (part.scale != adapter.parts.front().scale)
      return Error{ErrorCode::kUnsupported, "its matrices have different scales", folder.string(), ""};
    for (SourceTensor* half : {&part.a, &part.b}) {
      half->name.insert(0, kDraftAdapter);
      tensors.push_back(*half);
    }
  }
  metadata.set(std::string(kDraftAdapterScale), MetaValue::f32(adapter.parts.front().scale));
  return adapter;
}

}  // namespace dllm
