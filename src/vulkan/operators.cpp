#include "vulkan/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <type_traits>
#include <variant>

#include "base/try.h"
#include "cpu/score_head.h"
#include "vulkan/shader_numbers.h"

namespace dllm::vulkan {
namespace {

using Address = VkDeviceAddress;

// The push constants of the shaders, member by member. Shaders that compute have a `zero` (exact.glsl).
struct CopyRowsPush {
  Address from, order, to;
  std::uint32_t width, stride, has_order;
};
struct RmsNormPush {
  Address x, gain, result;
  std::uint32_t slice, groups, has_gain;
  float epsilon;
  std::uint32_t zero;
};
struct AddPush {
  Address a, b, result;
  std::uint32_t width, zero;
};
struct GluPush {
  Address gate, up, result;
  std::uint32_t width, has_up, zero;
};
struct RopePush {
  Address x, cosines, sines, result;
  std::uint32_t heads, head_dim, dims, interleaved, zero;
};
struct ScalePush {
  Address x, result, rows;
  std::uint32_t width;
  float context, canvas;
  std::uint32_t zero;
};
struct SelectPush {
  Address canvas, context, result, rows;
  std::uint32_t width;
};
struct HadamardPush {
  Address x, result, signs;
  std::uint32_t order, core;
  float scale;
  std::uint32_t zero;
};
struct QuantizePush {
  Address x, values, scales, sums;
  std::uint32_t k, zero;
};
struct LinearCodesPush {
  Address panels, values, scales, sums, bias, result, count, route;
  std::uint32_t k, n, panel_words, high, scale, minimum, super, super_minimum, has_bias, used, expert_words,
      shared_rows, zero;
};
struct RouteScoresPush {
  Address logits, bias, scores, keys;
  std::uint32_t experts, has_bias, grouped, zero;
};
struct RouteChoicePush {
  Address scores, keys, expert_scale, result, rows, count;
  std::uint32_t experts, used, groups, groups_used, capacity, block, normalize;
  float scale;
  std::uint32_t has_scale, zero;
};
struct MixExpertsPush {
  Address products, route, result;
  std::uint32_t width, used, zero;
};
struct ReduceChunkPush {
  Address logits, rows, asked, result, answers;
  std::uint32_t width, first, chunks, most_asked;
  float cap, twice;
  std::uint32_t zero;
};
struct MergeChunksPush {
  Address state, sequences, rows, chunks, answers, asked, candidates, kept;
  std::uint32_t count, most_asked, room, pass_pieces, zero;
};
struct CommitRowsPush {
  Address state, sequences, rows, candidates, counts, kept;
  std::uint32_t room, pass_words;
};
struct EmbedTokensPush {
  Address state, rows, table, to;
  std::uint32_t width;
};
struct StoreKvPush {
  Address key, value, stores;
  std::uint32_t kv_heads, head_dim, tile_words, key_words, value_words, zero;
};
struct AttentionPush {
  Address query, result, rows, visible, tiles;
  std::uint32_t heads, kv_heads, head_dim, tile_words, key_words, value_words;
  std::int32_t window;
  float scale;
  std::uint32_t zero;
};
static_assert(sizeof(RowArgument) == 32);

/// Invocations of a workgroup of most shaders.
constexpr std::int64_t kInvocations = 64;

std::uint32_t word(std::int64_t number) { return static_cast<std::uint32_t>(number); }
std::int64_t columns_of(std::int64_t items) { return (items + kInvocations - 1) / kInvocations; }

/// As shaders/cache.glsl does.
std::uint32_t number_of_cache(TensorType type) {
  return type == TensorType::kQ8_0 ? 3 : type == TensorType::kQ4_0 ? 4 : float_number(type);
}

}  // namespace

bool multiplies(const cpu::PackedFormat& format) {
  if (cpu::packs_floats(format)) return true;
  return code_number(format).has_value() && scale_number(format.scales).has_value();
}

Expected<const Operators::Compiled*> Operators::pipeline(std::string_view shader, const Constants& extra) {
  std::pair<std::string, Constants> key(shader, extra);
  if (const auto found = pipelines_.find(key); found != pipelines_.end()) return &*found;
  PipelineConstants constants = arithmetic_.constants();
  for (std::size_t i = 0; i < extra.size(); ++i) constants[2 + i] = extra[i];
  // Routes add scores in float64, or by integers where none is right.
  const bool integers = shader.starts_with("route_") && arithmetic_.fused64 == Fused64::kNone;
  const ShaderForm form = integers ? ShaderForm::kIntegers : arithmetic_.form;
  DLLM_TRY(Pipeline made, Pipeline::make(device_, shader, form, constants));
  return &*pipelines_.emplace(std::move(key), std::move(made)).first;
}

template <class Push>
Expected<Launch> Operators::launch(std::string_view shader, const Constants& extra, const Push& push,
                                   std::int64_t columns, std::uint32_t rows_per_group) {
  static_assert(std::is_trivially_copyable_v<Push> && sizeof push <= kMostPushBytes);
  DLLM_TRY(const Compiled* const compiled, pipeline(shader, extra));
  return launch_of(*compiled, std::as_bytes(std::span(&push, 1)), columns, rows_per_group);
}

Expected<Launch> Operators::launch_of(const Compiled& compiled, std::span<const std::byte> push, std::int64_t columns,
                                      std::uint32_t rows_per_group) const {
  if (columns > device_->facts().most_groups)
    return Error{ErrorCode::kUnsupported,
                 fmt::format("'{}' needs {} workgroups in a row, and {} runs {}", compiled.first.first, columns,
                             device_->facts().name, device_->facts().most_groups),
                 "--backend vulkan", "use another device or backend"};
  Launch made;
  made.pipeline = &compiled.second;
  made.shader = compiled.first.first;
  std::ranges::copy(push, made.push.begin());
  made.columns = word(columns);
  made.rows_per_group = rows_per_group;
  return made;
}

Expected<Launch> Operators::copy_rows(Address from, Address order, Address to, std::int64_t width,
                                      std::int64_t stride) {
  return launch("copy_rows", {},
                CopyRowsPush{from, order, to, word(width), word(stride == 0 ? width : stride), order != 0 ? 1U : 0U},
                columns_of(width));
}

Expected<Launch> Operators::rms_norm(const op::RmsNorm& o, std::int64_t width, Address x, Address gain, Address out,
                                     const KernelPart& part) {
  if (fuses(width / o.groups)) return norm_kernel(o, width, x, gain, out, part);
  return launch("rms_norm", {},
                RmsNormPush{x, gain, out, word(width / o.groups), word(o.groups), gain != 0 ? 1U : 0U, o.eps, 0},
                o.groups);
}

Expected<Launch> Operators::add(std::int64_t width, Address a, Address b, Address out) {
  return launch("add", {}, AddPush{a, b, out, word(width), 0}, columns_of(width));
}

Expected<Launch> Operators::glu(const op::Glu& o, std::int64_t width, Address gate, Address up, Address out,
                                const KernelPart& part) {
  if (arithmetic_.kernels) return glu_kernel(o, width, gate, up, out, part);
  return launch("glu", {o.activation == Activation::kGeluTanh ? 1U : 0U},
                GluPush{gate, up, out, word(width), up != 0 ? 1U : 0U, 0}, columns_of(width));
}

Expected<Launch> Operators::scale(std::int64_t width, const RegionFactors& factors, Address x, Address rows,
                                  Address out) {
  return launch("scale", {}, ScalePush{x, out, rows, word(width), factors.context, factors.canvas, 0},
                columns_of(width));
}

Expected<Launch> Operators::select(std::int64_t width, Address canvas, Address context, Address rows, Address out) {
  return launch("select", {}, SelectPush{canvas, context, out, rows, word(width)}, columns_of(width));
}

Expected<Launch> Operators::hadamard(const DeviceHadamard& transform, std::int64_t width, Address x, Address out) {
  return launch("hadamard", {},
                HadamardPush{x, out, transform.signs, word(transform.order), word(transform.core), transform.scale, 0},
                width / transform.order);
}

Expected<Launch> Operators::rope(const op::Rope& o, Address x, Address cos, Address sin, Address out) {
  return launch("rope", {},
                RopePush{x, cos, sin, out, word(o.heads), word(o.head_dim), word(o.dims),
                         o.layout == RopeLayout::kInterleaved ? 1U : 0U, 0},
                columns_of(std::int64_t{o.heads} * (o.head_dim - o.dims / 2)));
}

Expected<Launch> Operators::quantize(std::int64_t k, bool exact, Address x, const DeviceCodes& to,
                                     const KernelPart& part) {
  if (arithmetic_.kernels) return quantize_kernel(k, exact, x, to, part);
  return launch("quantize", {exact ? 1U : 0U}, QuantizePush{x, to.values, to.scales, to.sums, word(k), 0},
                columns_of(k / 32));
}

Expected<const ProductUnits*> Operators::product_units() {
  if (!units_) {
    DLLM_TRY(units_, find_product_units(device_, arithmetic_));
  }
  return &*units_;
}

Expected<Launch> Operators::linear(const DeviceMatrix& matrix, Address x, const DeviceCodes& codes, Address bias,
                                   const RowCount& rows, Address out, const ExpertPairs& pairs) {
  const cpu::PackedFormat& format = *matrix.format;
  const cpu::PackedLayout& layout = matrix.layout;
  const std::uint32_t k = word(matrix.k), n = word(matrix.n), has_bias = bias != 0 ? 1 : 0;
  const std::uint32_t panel_words = word(layout.bytes / 4), expert_words = word(matrix.expert_bytes / 4);
  const std::uint32_t used = word(pairs.used), shared = pairs.shared_rows ? 1 : 0;
  const bool each_pair = pairs.route != 0;
  if (takes_halves(matrix)) return halves_product(matrix, codes, bias, rows, out, pairs);
  if (cpu::packs_floats(format)) return floats_product(matrix, x, bias, rows, out, pairs);
  DLLM_TRY(const ProductUnits* const units, product_units());
  ProductUnits usable = *units;
  usable.kernels = usable.kernels && (!each_pair || pairs.experts != 0);
  ProductPlan plan = plan_product(format, matrix.n, rows.most, each_pair, usable);
  const bool fits = forced_ && (forced_->shader == ProductShader::kKernel
                                    ? each_pair == (forced_->kernel == kPairsKernel)
                                    : !each_pair || forced_->shader != ProductShader::kMatrices);
  if (fits && runs(*forced_, format, usable)) plan = *forced_;
  if (plan.shader == ProductShader::kKernel) return product_kernel(plan, matrix, codes, bias, rows, out, pairs);
  if (each_pair) plan.rows = 1;
  const Constants constants{*code_number(format),
                            *scale_number(format.scales),
                            format.has_min ? 1U : 0U,
                            static_cast<std::uint32_t>(format.group),
                            static_cast<std::uint32_t>(format.zero),
                            each_pair ? 1U : 0U,
                            plan.rows,
                            plan.layout};
  return launch(plan.name(), constants,
                LinearCodesPush{matrix.panels,
                                codes.values,
                                codes.scales,
                                codes.sums,
                                bias,
                                out,
                                rows.count,
                                pairs.route,
                                k,
                                n,
                                panel_words,
                                word(layout.high),
                                word(layout.scale),
                                word(layout.min),
                                word(layout.super),
                                word(layout.super_min),
                                has_bias,
                                used,
                                expert_words,
                                shared,
                                0},
                (matrix.n + plan.outputs() - 1) / plan.outputs(), plan.rows);
}

Expected<Launch> Operators::route_scores(const op::Route& o, std::int64_t experts, Address logits, Address bias,
                                         const RouteScratch& to) {
  return launch(
      "route_scores", {o.score == GateScore::kSoftmax ? 1U : 0U},
      RouteScoresPush{logits, bias, to.scores, to.keys, word(experts), bias != 0 ? 1U : 0U, o.groups > 1 ? 1U : 0U, 0},
      1);
}

Expected<Launch> Operators::route_choice(const op::Route& o, std::int64_t experts, const RouteScratch& from,
                                         Address scale, Address rows, Address count, Address out) {
  return launch("route_choice", {},
                RouteChoicePush{from.scores, from.keys, scale, out, rows, count, word(experts), word(o.used),
                                word(o.groups), word(o.groups_used), word(o.capacity), word(o.block),
                                o.normalize ? 1U : 0U, o.scale, scale != 0 ? 1U : 0U, 0},
                1);
}

Expected<Launch> Operators::mix_experts(std::int64_t used, std::int64_t width, Address products, Address route,
                                        Address out) {
  return launch("mix_experts", {}, MixExpertsPush{products, route, out, word(width), word(used), 0}, columns_of(width));
}

Expected<Launch> Operators::reduce_chunks(const op::ScoreHead& o, std::int64_t first, std::int64_t width,
                                          std::int64_t chunks, const ReductionPlaces& at) {
  static_assert(sizeof(ReduceRow) == 16 && sizeof(cpu::ReducedChunk) == 32);
  return launch(
      "reduce_chunk", {arithmetic_.fused64 == Fused64::kNative ? 1U : 0U},
      ReduceChunkPush{at.logits, at.rows, at.asked, at.chunks, at.answers, word(width), word(first), word(chunks),
                      word(cpu::kMostAsked), o.softcap, o.softcap == 0 ? 0 : 2.f / o.softcap, 0},
      (width + cpu::kHeadChunk - 1) / cpu::kHeadChunk);
}

Expected<Launch> Operators::merge_chunks(const CommitPlaces& places) {
  return launch(
      "merge_chunks", {arithmetic_.fused64 == Fused64::kNative ? 1U : 0U},
      MergeChunksPush{places.at.state, places.at.sequences, places.at.rows, places.head.chunks, places.head.answers,
                      places.head.asked, places.candidates, places.kept, word(places.chunks), word(cpu::kMostAsked),
                      word(places.room), word(places.pass_bytes / 16), 0},
      1);
}

Expected<Launch> Operators::commit_rows(const CommitPlaces& places) {
  const auto before =
      places.room * (places.chunks * static_cast<std::int64_t>(sizeof(cpu::ReducedChunk)) + cpu::kMostAsked * 4);
  // One workgroup, whatever the rows.
  constexpr std::uint32_t kAll = 1U << 30;
  return launch(
      "commit_rows", {},
      CommitRowsPush{places.at.state, places.at.sequences, places.at.rows, places.candidates, places.at.counts,
                     places.kept + static_cast<Address>(before), word(places.room), word(places.pass_bytes / 4)},
      1, kAll);
}

Expected<Launch> Operators::embed_tokens(const UnrollPlaces& at, Address table, std::int64_t width, Address to) {
  return launch("embed_tokens", {}, EmbedTokensPush{at.state, at.rows, table, to, word(width)}, columns_of(width));
}

std::int64_t CacheFormat::row_bytes(std::int64_t head_dim) const {
  const std::int64_t scales = (head_dim / 32 + 1) / 2 * 4;
  switch (type) {
    case TensorType::kF32:
      return 4 * head_dim;
    case TensorType::kQ8_0:
      return head_dim + scales;
    case TensorType::kQ4_0:
      return head_dim / 2 + scales;
    default:
      return 2 * head_dim;
  }
}

Expected<Launch> Operators::store_kv(const CacheFormat& cache, std::int64_t kv_heads, std::int64_t head_dim,
                                     const CachePlace& place, Address k, Address v, Address stores) {
  const bool codes = number_of_cache(cache.type) >= number_of_cache(TensorType::kQ8_0);
  const std::int64_t pieces = codes ? 2 * kv_heads * ((head_dim / 32 + 1) / 2) : kv_heads * head_dim / 2;
  return launch("store_kv", {number_of_cache(cache.type), cache.rotates_keys() ? 1U : 0U},
                StoreKvPush{k, v, stores, word(kv_heads), word(head_dim), place.tile_words, place.key_words,
                            place.value_words, 0},
                columns_of(pieces));
}

Expected<Launch> Operators::attention(const op::Attention& o, const CacheFormat& cache, const CachePlace& place,
                                      const AttentionPlaces& at, const KernelPart& part) {
  // Rotated queries and keys are 32 times too large together; keys have an eighth of it already.
  const float scale = o.scale * 1.44269504f * (cache.rotates_keys() ? 0.25f : 1.f);
  if (part.count != 0 && fuses(o, cache)) return attention_kernel(o, cache, place, at, scale, part);
  return launch(
      "attention", {number_of_cache(cache.type), cache.rotates_keys() ? 1U : 0U, word((o.head_dim + 63) / 64)},
      AttentionPush{at.q, at.out, at.rows, at.visible, at.tiles, word(o.heads), word(o.kv_heads), word(o.head_dim),
                    place.tile_words, place.key_words, place.value_words, o.window, scale, 0},
      o.heads);
}

}  // namespace dllm::vulkan
