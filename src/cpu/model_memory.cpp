#include "cpu/model_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "base/try.h"
#include "numerics/tensor_type.h"

namespace dllm::cpu {
namespace {

Expected<void> check_weight(const WeightDecl& decl, const WeightView& view) {
  if (!view.present()) {
    if (!decl.required) return {};
    return Error{ErrorCode::kInvalidFile, fmt::format("tensor '{}' is missing", decl.name), "", ""};
  }
  const Codec& format = codec(view.type);
  if (view.shape != decl.shape)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("tensor '{}' has shape {}, the model needs {}", decl.name, to_string(view.shape),
                             to_string(decl.shape)),
                 "", ""};
  if (view.shape[0] % format.block_elems != 0)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("rows of tensor '{}' hold {} elements, not a multiple of the {} of a {} block", decl.name,
                             view.shape[0], format.block_elems, format.name),
                 "", ""};
  const auto expected = static_cast<std::size_t>(format.row_bytes(view.shape[0]) * row_count(view.shape));
  if (view.data.size() != expected)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("tensor '{}' has {} bytes instead of {}", decl.name, view.data.size(), expected), "", ""};
  return {};
}

}  // namespace

Expected<void> check_weights(const Graph& graph, const Weights& weights) {
  if (graph.weights.size() != weights.size())
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("{} weights for a graph that reads {}", weights.size(), graph.weights.size()), "", ""};
  for (std::size_t i = 0; i < weights.size(); ++i) DLLM_CHECK_OK(check_weight(graph.weights[i], weights[i]));
  return {};
}

TensorType storage_type(CpuKvType type, const Graph& graph, const Weights& weights) {
  switch (type) {
    case CpuKvType::kF32:
      return TensorType::kF32;
    case CpuKvType::kF16:
      return TensorType::kF16;
    case CpuKvType::kBF16:
      return TensorType::kBF16;
    case CpuKvType::kQ8_0:
      return TensorType::kQ8_0;
    case CpuKvType::kQ4_0:
      return TensorType::kQ4_0;
    case CpuKvType::kAuto:
      break;
  }
  const auto is_f32 = [&](WeightId id) { return weights[static_cast<std::size_t>(id)].type == TensorType::kF32; };
  const bool all_f32 = std::all_of(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
    if (const auto* experts = std::get_if<op::Experts>(&op))
      return is_f32(experts->gate) && is_f32(experts->up) && is_f32(experts->down);
    const auto* linear = std::get_if<op::Linear>(&op);
    return linear == nullptr || is_f32(linear->weight);
  });
  return all_f32 ? TensorType::kF32 : TensorType::kF16;
}

std::string_view storage_name(TensorType type) {
  switch (type) {
    case TensorType::kF16:
      return "f16";
    case TensorType::kBF16:
      return "bf16";
    case TensorType::kQ8_0:
      return "q8_0";
    case TensorType::kQ4_0:
      return "q4_0";
    default:
      return "f32";
  }
}

Expected<std::vector<KvShape>> kv_shapes(const Graph& graph, TensorType type) {
  const std::int64_t block = codec(type).block_elems;
  std::vector<KvShape> shapes;
  for (const Op& op : graph.ops)
    if (const auto* attention = std::get_if<op::Attention>(&op)) {
      if (attention->head_dim % block != 0)
        return Error{ErrorCode::kUsage,
                     fmt::format("a {} cache stores blocks of {}, which do not divide the model's head dimension of {}",
                                 codec(type).name, block, attention->head_dim),
                     "--cache-type", "use f16 or bf16"};
      const auto layer = static_cast<std::size_t>(attention->layer);
      if (shapes.size() <= layer) shapes.resize(layer + 1);
      shapes[layer] = {attention->kv_heads, attention->head_dim};
    }
  return shapes;
}

}  // namespace dllm::cpu
