// The operators that kernels of CUDA run.
#include <fmt/format.h>

#include <type_traits>
#include <utility>

#include "base/try.h"
#include "vulkan/operators.h"
#include "vulkan/shader_numbers.h"

namespace dllm::vulkan {
namespace {

using Address = VkDeviceAddress;

// The arguments of the kernels in cuda/.
struct NormKernelPush {
  Address x, other, sum, gain, result, count;
  DeviceCodes codes;
  std::uint32_t slice, groups, exact;
  float epsilon;
};
struct QuantizeKernelPush {
  Address x;
  DeviceCodes codes;
  Address count;
  std::uint32_t k, pairs, exact;
};
struct GluKernelPush {
  Address gate, up, result, count;
  DeviceCodes codes;
  std::uint32_t width, pairs, exact;
};
struct FloatsKernelPush {
  Address panels, x, bias, result, count, route;
  std::uint32_t k, n, panel_words, has_bias, used, expert_words, shared_rows;
};
struct ProductKernelPush {
  Address panels, values, scales, sums, bias, result, count, route;
  std::uint32_t k, n, panel_words, high, scale, minimum, super, super_minimum, has_bias, used, expert_words,
      shared_rows;
  std::int32_t zero_point;
  std::uint32_t scale_kind, table;
};
struct RouteKernelPush {
  Address logits, bias, expert_scale, result, count;
  std::uint32_t experts, used, softmax, normalize;
  float scale;
};
struct AttentionKernelPush {
  Address query, result, rows, visible, tiles, count;
  DeviceCodes codes;
  std::uint32_t heads, kv_heads, head_dim, tile_words, key_words, value_words;
  std::int32_t window;
  float scale;
  std::uint32_t exact;
};

std::uint32_t number(std::int64_t count) { return static_cast<std::uint32_t>(count); }
std::uint32_t flag(bool set) { return set ? 1 : 0; }

}  // namespace

bool Operators::fuses(const op::Attention& o, const CacheFormat& cache) const {
  const bool halves = cache.type == TensorType::kF16 || cache.type == TensorType::kBF16;
  return arithmetic_.kernels && halves && o.head_dim <= 128 && o.head_dim % 8 == 0;
}

template <class Push>
Expected<Launch> Operators::kernel(const std::string& module, const std::string& name, std::uint32_t threads,
                                   const Push& push, std::int64_t columns, std::uint32_t rows_per_group) {
  static_assert(std::is_trivially_copyable_v<Push> && sizeof push <= kMostPushBytes);
  std::pair<std::string, Constants> key(module + "/" + name, Constants{threads});
  auto found = pipelines_.find(key);
  if (found == pipelines_.end()) {
    std::shared_ptr<const CudaModule>& made = modules_[module];
    if (!made) {
      DLLM_TRY(made, CudaModule::make(device_, module));
    }
    DLLM_TRY(Pipeline pipeline, Pipeline::make(made, name, threads));
    found = pipelines_.emplace(std::move(key), std::move(pipeline)).first;
  }
  return launch_of(*found, std::as_bytes(std::span(&push, 1)), columns, rows_per_group);
}

Expected<Launch> Operators::norm_kernel(const op::RmsNorm& o, std::int64_t width, Address x, Address gain, Address out,
                                        const KernelPart& part) {
  const std::int64_t slice = width / o.groups;
  return kernel("rows", "rms_norm", slice <= 128 ? 128 : 256,
                NormKernelPush{x, part.other, part.sum, gain, out, part.count, part.codes, number(slice),
                               number(o.groups), flag(part.exact), o.eps},
                o.groups);
}

Expected<Launch> Operators::glu_kernel(const op::Glu& o, std::int64_t width, Address gate, Address up, Address out,
                                       const KernelPart& part) {
  return kernel(
      "rows", o.activation == Activation::kGeluTanh ? "glu_gelu" : "glu_silu", 256,
      GluKernelPush{gate, up, out, part.count, part.codes, number(width), number(part.pairs), flag(part.exact)},
      (width + 1023) / 1024);
}

Expected<Launch> Operators::quantize_kernel(std::int64_t k, bool exact, Address x, const DeviceCodes& to,
                                            const KernelPart& part) {
  return kernel("rows", "quantize_rows", 256,
                QuantizeKernelPush{x, to, part.count, number(k), number(part.pairs), flag(exact)}, (k / 32 + 31) / 32);
}

Expected<Launch> Operators::floats_kernel(const DeviceMatrix& matrix, Address x, Address bias, const RowCount& rows,
                                          Address out, const ExpertPairs& pairs) {
  const bool of_pairs = pairs.route != 0;
  const TensorType type = matrix.format->type;
  const std::string name = fmt::format("floats_{}{}",
                                       type == TensorType::kF32   ? "f32"
                                       : type == TensorType::kF16 ? "f16"
                                                                  : "bf16",
                                       of_pairs ? "_pairs" : "");
  const FloatsKernelPush push{matrix.panels,
                              x,
                              bias,
                              out,
                              rows.count,
                              pairs.route,
                              number(matrix.k),
                              number(matrix.n),
                              number(matrix.layout.bytes / 4),
                              flag(bias != 0),
                              number(pairs.used),
                              number(matrix.expert_bytes / 4),
                              flag(pairs.shared_rows)};
  // Blocks have eight groups of rows of a panel, or four panels.
  const std::int64_t outputs = of_pairs ? 64 : 16;
  DLLM_TRY(Launch made, kernel("floats", name, 128, push, (matrix.n + outputs - 1) / outputs, 32));
  made.experts = of_pairs ? number(pairs.experts) : 0;
  return made;
}

Expected<Launch> Operators::product_kernel(const ProductPlan& plan, const DeviceMatrix& matrix,
                                           const DeviceCodes& codes, Address bias, const RowCount& rows, Address out,
                                           const ExpertPairs& pairs) {
  const cpu::PackedFormat& format = *matrix.format;
  const cpu::PackedLayout& layout = matrix.layout;
  const ProductKernelPush push{matrix.panels,
                               codes.values,
                               codes.scales,
                               codes.sums,
                               bias,
                               out,
                               rows.count,
                               pairs.route,
                               number(matrix.k),
                               number(matrix.n),
                               number(layout.bytes / 4),
                               number(layout.high),
                               number(layout.scale),
                               number(layout.min),
                               number(layout.super),
                               number(layout.super_min),
                               flag(bias != 0),
                               number(pairs.used),
                               number(matrix.expert_bytes / 4),
                               flag(pairs.shared_rows),
                               format.zero,
                               *scale_number(format.scales),
                               flag(format.codes == cpu::Codes::kIq4)};
  const ProductKernel& shape = kProductKernels[plan.kernel];
  DLLM_TRY(Launch made, kernel(product_module(format), plan.name(), shape.threads, push,
                               (matrix.n + plan.outputs() - 1) / plan.outputs(), shape.rows));
  made.experts = pairs.route != 0 ? number(pairs.experts) : 0;
  return made;
}

Expected<Launch> Operators::attention_kernel(const op::Attention& o, const CacheFormat& cache, const CachePlace& place,
                                             const AttentionPlaces& at, float scale, const KernelPart& part) {
  return kernel("attention", cache.type == TensorType::kF16 ? "attention_f16" : "attention_bf16", 256,
                AttentionKernelPush{at.q, at.out, at.rows, at.visible, at.tiles, part.count, part.codes,
                                    number(o.heads), number(o.kv_heads), number(o.head_dim), place.tile_words,
                                    place.key_words, place.value_words, o.window, scale, flag(part.exact)},
                o.heads, 4);
}

bool Operators::fuses(const op::Route& o, std::int64_t experts) const {
  return arithmetic_.kernels && o.groups <= 1 && o.capacity == 0 && o.used <= 32 && experts <= 256;
}

Expected<Launch> Operators::route(const op::Route& o, std::int64_t experts, Address logits, Address bias, Address scale,
                                  Address count, Address out) {
  return kernel("route", "route", 128,
                RouteKernelPush{logits, bias, scale, out, count, number(experts), number(o.used),
                                flag(o.score == GateScore::kSoftmax), flag(o.normalize), o.scale},
                1, 4);
}

}  // namespace dllm::vulkan
