#include "model/vision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/try.h"
#include "graph/builder.h"
#include "model/key_reader.h"
#include "model/vision_hf.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

std::string vision_name(std::int64_t layer, std::string_view part) {
  return fmt::format("v.blk.{}.{}.weight", layer, part);
}

class VisionBuilder {
 public:
  VisionBuilder(const VisionDesc& desc, StepShape shape) : desc_(desc), b_(shape) {}

  Graph build() {
    const ValueId pixels = b_.hidden_in(desc_.patch_values(), "v.pixels");
    const ValueId place = b_.hidden_in(desc_.width, "v.place");
    const WeightId patch = b_.weight("v.patch_embd.weight", {desc_.patch_values(), desc_.width});
    ValueId x = b_.add(b_.linear(pixels, patch, "v.patch_embd"), place, "v.embd");
    for (std::int64_t layer = 0; layer < desc_.layers; ++layer) x = feed_forward(attention(x, layer), layer);
    b_.hidden_out(x);
    return b_.take();
  }

 private:
  ValueId norm(ValueId x, std::int64_t layer, std::string_view part) {
    const std::string name = vision_name(layer, part);
    return b_.rms_norm(x, b_.weight(name, {desc_.width}), desc_.norm_eps, name);
  }
  ValueId linear(ValueId x, std::int64_t layer, std::string_view part, std::int64_t in, std::int64_t out) {
    const std::string name = vision_name(layer, part);
    return b_.linear(x, b_.weight(name, {in, out}), name);
  }
  /// Each head is normalized. `gain`: the tensor; empty: none.
  ValueId head_norm(ValueId x, std::int64_t layer, std::string_view gain, std::string value) {
    const WeightId weight = gain.empty() ? kNoId : b_.weight(vision_name(layer, gain), {desc_.head_dim});
    return b_.rms_norm(x, weight, desc_.norm_eps, std::move(value), static_cast<std::int32_t>(desc_.heads));
  }
  /// The first half of each head turns by the patch's column, the second by its line.
  ValueId rope(ValueId x, std::string value) {
    const auto half = static_cast<std::int32_t>(desc_.head_dim / 2);
    op::Rope spec{.x = kNoId,
                  .heads = static_cast<std::int32_t>(2 * desc_.heads),
                  .head_dim = half,
                  .dims = half,
                  .layout = RopeLayout::kHalfSplit,
                  .theta = kVisionRopeTheta,
                  .scale = 1.f,
                  .factors = kNoId,
                  .out = kNoId};
    spec.grid = true;
    return b_.rope(x, spec, std::move(value));
  }

  /// Queries and keys have gains; there is no factor 1 / sqrt(head_dim).
  ValueId attention(ValueId x, std::int64_t layer) {
    const std::int64_t inner = desc_.heads * desc_.head_dim;
    const ValueId normed = norm(x, layer, "ln1");
    const ValueId q = linear(normed, layer, "attn_q", desc_.width, inner);
    const ValueId k = linear(normed, layer, "attn_k", desc_.width, inner);
    const ValueId v = linear(normed, layer, "attn_v", desc_.width, inner);
    const ValueId q_rot = rope(head_norm(q, layer, "attn_q_norm", fmt::format("v.blk.{}.q_norm", layer)),
                               fmt::format("v.blk.{}.q_rope", layer));
    const ValueId k_rot = rope(head_norm(k, layer, "attn_k_norm", fmt::format("v.blk.{}.k_norm", layer)),
                               fmt::format("v.blk.{}.k_rope", layer));
    b_.store_kv(k_rot, head_norm(v, layer, "", fmt::format("v.blk.{}.v_norm", layer)),
                static_cast<std::int32_t>(layer));
    const ValueId mixed = b_.attention(q_rot,
                                       {.q = kNoId,
                                        .layer = static_cast<std::int32_t>(layer),
                                        .heads = static_cast<std::int32_t>(desc_.heads),
                                        .kv_heads = static_cast<std::int32_t>(desc_.heads),
                                        .head_dim = static_cast<std::int32_t>(desc_.head_dim),
                                        .scale = 1.f,
                                        .out = kNoId},
                                       fmt::format("v.blk.{}.mix", layer));
    const ValueId out = linear(mixed, layer, "attn_out", inner, desc_.width);
    return b_.add(x, norm(out, layer, "attn_post_norm"), fmt::format("v.blk.{}.attn_sum", layer));
  }

  ValueId feed_forward(ValueId x, std::int64_t layer) {
    const ValueId normed = norm(x, layer, "ln2");
    const ValueId gate = linear(normed, layer, "ffn_gate", desc_.width, desc_.ffn_width);
    const ValueId up = linear(normed, layer, "ffn_up", desc_.width, desc_.ffn_width);
    const ValueId gated = b_.glu(gate, up, fmt::format("v.blk.{}.act", layer), Activation::kGeluTanh);
    const ValueId down = linear(gated, layer, "ffn_down", desc_.ffn_width, desc_.width);
    return b_.add(x, norm(down, layer, "ffn_post_norm"), fmt::format("v.blk.{}.out", layer));
  }

  const VisionDesc& desc_;
  GraphBuilder b_;
};

Error vision_error(const ModelSource& source, std::string what, std::string_view where,
                   ErrorCode code = ErrorCode::kInvalidFile) {
  return {code, std::move(what), fmt::format("{}, {}", source.name, where), ""};
}

constexpr std::string_view kProjectorKeys[] = {"clip.vision.projector_type", "clip.projector_type"};

Expected<std::int64_t> vision_size(const ModelSource& source, std::string_view tail,
                                   std::optional<std::int64_t> fallback = {}) {
  const std::string key = fmt::format("clip.vision.{}", tail);
  DLLM_TRY(const auto found, source.metadata.integer(key));
  if (!found && !fallback) return vision_error(source, "the key is missing", key);
  const std::int64_t value = found ? *found : *fallback;
  if (value < 1 || value > kMaxModelDim)
    return vision_error(source, fmt::format("{} is not a size between 1 and {}", value, kMaxModelDim), key);
  return value;
}

Expected<void> check_projector(const ModelSource& source) {
  DLLM_TRY(const auto architecture, source.metadata.string("general.architecture"));
  if (architecture.value_or("") != "clip")
    return Error{ErrorCode::kInvalidFile, "this is no vision tower", source.name,
                 "its general.architecture is 'clip' in a file of llama.cpp's form, such as 'dllm convert --mmproj' "
                 "writes"};
  std::string kind;
  for (const std::string_view key : kProjectorKeys) {
    DLLM_TRY(const auto found, source.metadata.string(key));
    if (kind.empty() && found) kind = *found;
  }
  if (kind == "gemma4v") return {};
  return vision_error(source, fmt::format("a tower of the kind '{}'", kind), kProjectorKeys[0],
                      ErrorCode::kUnsupported);
}

Expected<VisionDesc> describe_vision(const ModelSource& source) {
  DLLM_CHECK_OK(check_projector(source));
  VisionDesc desc;
  DLLM_TRY(desc.width, vision_size(source, "embedding_length"));
  DLLM_TRY(desc.layers, vision_size(source, "block_count"));
  DLLM_TRY(desc.heads, vision_size(source, "attention.head_count"));
  DLLM_TRY(desc.ffn_width, vision_size(source, "feed_forward_length"));
  DLLM_TRY(const std::int64_t patch, vision_size(source, "patch_size"));
  DLLM_TRY(const std::int64_t pool, vision_size(source, "projector.scale_factor", desc.pool));
  DLLM_TRY(const std::int64_t tokens, vision_size(source, "max_soft_tokens", desc.most_tokens));
  if (patch > 256 || pool > 64 || tokens > 4096 || desc.layers > 4096)
    return vision_error(
        source, fmt::format("{} layers, patches of {}, squares of {}, {} tokens", desc.layers, patch, pool, tokens),
        "clip.vision.*");
  desc.patch = static_cast<std::int32_t>(patch);
  desc.pool = static_cast<std::int32_t>(pool);
  desc.most_tokens = static_cast<std::int32_t>(tokens);
  DLLM_TRY(const auto eps, source.metadata.number("clip.vision.attention.layer_norm_epsilon"));
  if (eps) desc.norm_eps = static_cast<float>(*eps);
  const SourceTensor* const q = source.find(vision_name(0, "attn_q"));
  const SourceTensor* const table = source.find("v.position_embd.weight");
  const SourceTensor* const projection = source.find("mm.input_projection.weight");
  if (q == nullptr || q->shape.size() != 2 || q->shape[1] % (4 * desc.heads) != 0)
    return vision_error(source, fmt::format("the matrix has no {} heads of a multiple of 4 rows", desc.heads),
                        vision_name(0, "attn_q"));
  desc.head_dim = q->shape[1] / desc.heads;
  if (table == nullptr || table->shape.size() != 3 || table->shape[0] != desc.width || table->shape[2] != 2)
    return vision_error(source, "two tables of embeddings are expected", "v.position_embd.weight");
  desc.positions = table->shape[1];
  if (projection == nullptr || projection->shape.size() != 2)
    return vision_error(source, "the projection is missing", "mm.input_projection.weight");
  desc.text_width = projection->shape[1];
  desc.standardizes = source.find("v.std_bias") != nullptr || source.find("v.std_scale") != nullptr;
  return desc;
}

/// A tensor of the tower as a graph declares it. The kernel of the patches is stored with one dimension for each of
/// column, line and colour.
Expected<WeightView> vision_weight(const ModelSource& source, const WeightDecl& decl) {
  const SourceTensor* const tensor = source.find(decl.name);
  if (tensor == nullptr) return vision_error(source, "the tensor is missing", decl.name);
  Shape shape = tensor->shape;
  if (decl.name == "v.patch_embd.weight" && shape.size() == 4) shape = {shape[0] * shape[1] * shape[2], shape[3]};
  if (shape == decl.shape) return WeightView{tensor->type, decl.shape, tensor->data, tensor->mapped};
  return vision_error(source, fmt::format("its shape is {}, not {}", to_string(tensor->shape), to_string(decl.shape)),
                      decl.name);
}

Expected<Weights> vision_weights(const ModelSource& source, const Graph& graph) {
  Weights weights;
  for (const WeightDecl& decl : graph.weights) {
    DLLM_TRY(WeightView view, vision_weight(source, decl));
    weights.push_back(view);
  }
  return weights;
}

/// Whether a source has only tensors that are read: what another one does would be missing. Sound has names of its own.
Expected<void> check_all_read(const ModelSource& source, std::initializer_list<const Graph*> graphs) {
  std::set<std::string> read = {"v.position_embd.weight", "v.std_bias", "v.std_scale"};
  for (const Graph* graph : graphs)
    for (const WeightDecl& decl : graph->weights) read.insert(decl.name);
  for (const SourceTensor& tensor : source.tensors)
    if ((tensor.name.starts_with("v.") || (tensor.name.starts_with("mm.") && !tensor.name.starts_with("mm.a."))) &&
        !read.contains(tensor.name))
      return vision_error(source, "a tensor that this tower does not have", tensor.name, ErrorCode::kUnsupported);
  return {};
}

Expected<std::vector<float>> vision_vector(const ModelSource& source, const char* name, std::int64_t size) {
  DLLM_TRY(const WeightView view, vision_weight(source, {name, {size}}));
  std::vector<float> values(static_cast<std::size_t>(size));
  codec(view.type).dequantize(view.data.data(), values.data(), size);
  return values;
}

}  // namespace

Graph build_vision_tower(const VisionDesc& desc, StepShape shape) { return VisionBuilder(desc, shape).build(); }

Graph build_vision_projector(const VisionDesc& desc, StepShape shape) {
  GraphBuilder b(shape);
  const ValueId x = b.rms_norm(b.hidden_in(desc.width, "mm.input"), kNoId, desc.norm_eps, "mm.norm");
  b.hidden_out(b.linear(x, b.weight("mm.input_projection.weight", {desc.width, desc.text_width}), "mm.embd"));
  return b.take();
}

Expected<std::shared_ptr<const VisionModel>> VisionModel::load(ModelSource source) {
  auto model = std::make_shared<VisionModel>();
  DLLM_TRY(model->desc, describe_vision(source));
  const VisionDesc& desc = model->desc;
  for (const SourceTensor& tensor : source.tensors)
    if (tensor.name.ends_with(".input_max") || tensor.name.ends_with(".output_max"))
      return vision_error(source, "products with clipped inputs or outputs", tensor.name, ErrorCode::kUnsupported);
  const Graph tower = build_vision_tower(desc, {1, 0}), projector = build_vision_projector(desc, {1, 0});
  DLLM_TRY(model->tower, vision_weights(source, tower));
  DLLM_TRY(model->projector, vision_weights(source, projector));
  DLLM_CHECK_OK(check_all_read(source, {&tower, &projector}));
  DLLM_TRY(model->positions, vision_weight(source, {"v.position_embd.weight", {desc.width, desc.positions, 2}}));
  if (desc.standardizes) {
    DLLM_TRY(model->shift, vision_vector(source, "v.std_bias", desc.width));
    DLLM_TRY(model->scale, vision_vector(source, "v.std_scale", desc.width));
  }
  model->source = std::move(source);
  return std::shared_ptr<const VisionModel>(std::move(model));
}

std::vector<float> VisionModel::place(std::int64_t column, std::int64_t line) const {
  const Codec& format = codec(positions.type);
  const auto row_bytes = format.row_bytes(desc.width);
  std::vector<float> sum(static_cast<std::size_t>(desc.width)), other(sum.size());
  format.dequantize(positions.data.data() + column * row_bytes, sum.data(), desc.width);
  format.dequantize(positions.data.data() + (desc.positions + line) * row_bytes, other.data(), desc.width);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  return sum;
}

Expected<ModelSource> vision_source(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return vision_from_hf(path);
  return open_source(path);
}

}  // namespace dllm
