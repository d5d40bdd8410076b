#include "model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/try.h"
#include "model/describe.h"
#include "model/tensor_check.h"
#include "numerics/packed.h"
#include "numerics/tensor_type.h"

namespace dllm {

Expected<std::shared_ptr<const Model>> Model::load(const std::string& path, const Log& log) {
  DLLM_TRY(auto source, open_source(path));
  return load(std::move(source), log);
}

Expected<std::shared_ptr<const Model>> Model::load(ModelSource source, const Log& log,
                                                   std::span<const AdapterRequest> adapters,
                                                   std::vector<Adapter> opened) {
  std::shared_ptr<Model> model(new Model);
  model->source_ = std::move(source);
  const Metadata& metadata = model->metadata();
  for (const std::string& warning : model->source_.warnings) log.warning("{}", warning);
  const auto in_file = [&](Error error) {
    error.where = error.where.empty() ? model->source_.name : model->source_.name + ", " + error.where;
    return error;
  };
  auto name = metadata.string("general.architecture");
  if (!name) return in_file(std::move(name).error());
  if (!*name)
    return in_file({ErrorCode::kInvalidFile, "the key is missing", "general.architecture", "is this a model file?"});
  auto architecture = find_architecture(**name);
  if (!architecture) return in_file(std::move(architecture).error());
  model->architecture_ = *architecture;
  if (auto text = model->load_text(log); !text) return in_file(std::move(text).error());

  const SourceTensor* embedding = model->source_.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    return in_file({ErrorCode::kInvalidFile, "the embedding matrix is missing", "token_embd.weight", ""});
  const TensorFacts facts{embedding->shape[1], static_cast<std::int64_t>(model->tensors().size()),
                          model->source_.find("output.weight") != nullptr};
  auto desc = describe(*model->architecture_, metadata, facts, model->tokenizer(), log);
  if (!desc) return in_file(std::move(desc).error());
  model->desc_ = *std::move(desc);
  // A drafter's other graph (build_context) has products too, without scales: such a file is refused.
  int left_out = 0;
  if (!model->is_drafter())
    model->scales_ =
        take_product_scales(model->architecture_->build(model->desc_, {1, 1}), model->source_.tensors, left_out);
  if (left_out > 0)
    log.warning("{} scales of activations are left out: products here do not take activations of four bits", left_out);
  if (auto added = model->open_adapters(adapters, std::move(opened)); !added) return std::move(added).error();
  if (auto bound = model->bind_weights(); !bound) return in_file(std::move(bound).error());
  return std::shared_ptr<const Model>(std::move(model));
}

namespace {

Expected<Tokenizer> tokenizer_of(const Metadata& metadata) {
  DLLM_TRY(auto spec, Tokenizer::spec_from_gguf(metadata));
  return Tokenizer::create(std::move(spec));
}

}  // namespace

Expected<void> Model::load_text(const Log& log) {
  DLLM_TRY(const auto kind, metadata().string("tokenizer.ggml.model"));
  if (!kind || *kind == "no_vocab" || *kind == "none") {
    tokenizer_error_ = {ErrorCode::kInvalidFile, "the model file has no tokenizer", "tokenizer.ggml.model",
                        "only token ids can be used with it"};
    return {};
  }
  // Without a readable vocabulary or template the network still runs on token ids; requests for text get the reason
  // (require_tokenizer()).
  auto tokenizer = tokenizer_of(metadata());
  if (tokenizer) {
    for (const std::string& warning : tokenizer->spec().warnings) log.warning("{}", warning);
    tokenizer_.emplace(*std::move(tokenizer));
  } else {
    tokenizer_error_ = std::move(tokenizer).error();
    log.warning("{}", tokenizer_error_.message());
  }
  for (const auto& [key, place] : {std::pair(kChatTemplateKey, &template_), {kToolTemplateKey, &tool_template_}}) {
    DLLM_TRY(const auto source, metadata().string(key));
    if (!source) continue;
    auto compiled = ChatTemplate::compile(*source);
    if (compiled) {
      place->emplace(*std::move(compiled));
    } else {
      log.warning("{}: {}", key, compiled.error().message());
    }
  }
  return {};
}

Expected<const Tokenizer*> Model::require_tokenizer() const {
  if (tokenizer_) return &*tokenizer_;
  return tokenizer_error_;
}

WeightView Model::bind(const WeightDecl& decl, const std::vector<SourceTensor>& tensors) {
  const auto tensor = std::ranges::lower_bound(tensors, decl.name, {}, &SourceTensor::name);
  if (tensor == tensors.end() || tensor->name != decl.name) return {};
  WeightView view{tensor->type, decl.shape, tensor->data, tensor->mapped};
  if (tensor->permute_heads != 0 || !tensor->parts.empty()) {
    owned_.push_back(std::make_unique<std::vector<std::byte>>());
    view.data = tensor_bytes(*tensor, *owned_.back());
    view.mapped = false;
  }
  return view;
}

Expected<void> Model::check() const {
  for (const Adapter& adapter : adapters_) DLLM_CHECK_OK(check_unchanged(adapter.files));
  return source_.check();
}

Graph Model::build(StepShape shape, std::span<const std::int32_t> hidden_layers) const {
  ModelDesc desc = desc_;
  desc.hidden_layers.assign(hidden_layers.begin(), hidden_layers.end());
  return with_product_scales(with_adapters(architecture_->build(desc, shape), adapters_), scales_);
}

Expected<void> Model::check_hidden(std::span<const std::int32_t> layers) const {
  if (hidden_width(build({1, 1}, layers)) == static_cast<std::int64_t>(layers.size()) * desc_.width) return {};
  return Error{ErrorCode::kUnsupported,
               fmt::format("a '{}' does not hand out the hidden states of its layers", desc_.architecture),
               source_.name, "drafters need a llama, qwen2, qwen3 or qwen3moe"};
}

/// The one of the source first. Tensors get names of their own, as several adapters may change one matrix.
Expected<void> Model::open_adapters(std::span<const AdapterRequest> requests, std::vector<Adapter> opened) {
  DLLM_TRY(Adapter own, take_draft_adapter(metadata(), source_.tensors));
  if (!own.parts.empty()) adapters_.push_back(std::move(own));
  if (const MetaValue* rotation = metadata().find(kRotationKey); rotation != nullptr && !requests.empty())
    return Error{ErrorCode::kUnsupported, "the weights of the model are rotated, those of the adapter are not",
                 requests.front().path, "use it with a file that was quantized without --rotate"};
  for (const AdapterRequest& request : requests) {
    if (request.drafts_only && desc_.modes.empty())
      return Error{ErrorCode::kUsage, "the model makes no drafts", "--lora-draft", "give --lora"};
    DLLM_TRY(Adapter adapter, open_adapter(request, *architecture_, desc_.heads, desc_.kv_heads));
    for (AdapterPart& part : adapter.parts)
      for (SourceTensor* half : {&part.a, &part.b})
        half->name = fmt::format("adapter{}.{}", adapters_.size(), half->name);
    adapters_.push_back(std::move(adapter));
  }
  for (Adapter& adapter : opened) adapters_.push_back(std::move(adapter));
  return check_adapters(architecture_->build(desc_, {1, 1}), adapters_);
}

/// The tensor times `scale`, in F32; itself if that changes nothing.
SourceTensor Model::scaled(const SourceTensor& tensor, float scale) {
  if (scale == 1.f) return tensor;
  const std::int64_t count = element_count(tensor.shape);
  std::vector<std::byte> reordered;
  std::vector<float> values(static_cast<std::size_t>(count));
  codec(tensor.type).dequantize(tensor_bytes(tensor, reordered).data(), values.data(), count);
  for (float& value : values) value *= scale;
  const auto bytes = std::as_bytes(std::span(values));
  owned_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
  return {tensor.name, TensorType::kF32, tensor.shape, *owned_.back()};
}

namespace {

/// Tensors that are lists of tiles get the shapes that the graph declares; their readers check the number of tiles.
Expected<void> accept_tiles(const Graph& graph, bool known, std::vector<SourceTensor>& tensors) {
  std::unordered_map<std::string_view, const WeightDecl*> decls;
  for (const WeightDecl& decl : graph.weights) decls.emplace(decl.name, &decl);
  for (SourceTensor& tensor : tensors) {
    if (!tile_element(tensor.type)) continue;
    if (!known)
      return Error{
          ErrorCode::kUnsupported, "the matrix is stored in a device's tiles", tensor.name,
          "run it on that device (key dllm.tile_device; `dllm run --list-devices` names its backend), or convert "
          "without --layout"};
    const auto decl = decls.find(tensor.name);
    if (decl != decls.end() && decl->second->shape.size() >= 2) tensor.shape = decl->second->shape;
  }
  return {};
}

}  // namespace

Expected<void> Model::bind_weights() {
  const Graph graph = build({1, 1});
  DLLM_TRY(auto tensors, split_fused(source_.tensors, desc_.heads * desc_.head_dim, desc_.kv_heads * desc_.head_dim));
  for (const Adapter& adapter : adapters_)
    for (const AdapterPart& part : adapter.parts) tensors.insert(tensors.end(), {part.a, scaled(part.b, part.scale)});
  DLLM_CHECK_OK(accept_tiles(graph, source_.device_tiles, tensors));
  DLLM_CHECK_OK(check_tensors(graph, tensors));
  // bind() would look at every tensor for each weight.
  std::ranges::stable_sort(tensors, {}, &SourceTensor::name);
  for (const WeightDecl& decl : graph.weights) weights_.push_back(bind(decl, tensors));
  return {};
}

}  // namespace dllm
