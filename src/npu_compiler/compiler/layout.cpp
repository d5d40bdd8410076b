#include "npu_compiler/compiler/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/kv_factors.h"
#include "npu_compiler/lowering/segments.h"

namespace dllm::npu {
namespace {

Error unsupported(std::string what, std::string hint = "") {
  return {ErrorCode::kUnsupported, std::move(what), "npu compiler", std::move(hint)};
}

std::int64_t power_of_two(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

class Allocator {
 public:
  HbmTensor tensor(std::uint64_t elements, const MxFormat& format) {
    HbmTensor t{next_, 0, format, elements};
    t.scale_offset = format.element_bytes(elements);
    next_ += t.scale_offset + format.scale_bytes(elements);
    next_ = (next_ + kHbmAlign - 1) / kHbmAlign * kHbmAlign;
    return t;
  }
  std::uint64_t next() const { return next_; }

 private:
  std::uint64_t next_ = 0;
};

class LayoutBuilder {
 public:
  LayoutBuilder(const Graph& graph, const std::vector<bool>& present, const MachineConfig& machine,
                std::int64_t positions, const Mapping* mapping)
      : graph_(graph), present_(present) {
    layout_.machine = machine;
    layout_.positions = positions;
    layout_.mapping = mapping != nullptr ? *mapping : rule_mapping(sram_shape(machine));
  }

  Expected<ModelLayout> build() {
    DLLM_CHECK_OK(check_operators());
    DLLM_TRY(layout_.values, lane_maps(graph_, layout_.machine));
    layout_.key_tile = layout_.machine.hlen;
    for (const LaneMap& lanes : layout_.values)
      if (lanes.heads() && lanes.hlen > layout_.machine.hlen) layout_.key_tile = vlen();
    DLLM_CHECK_OK(check_buffers());
    plan_mram(layout_);
    for (const dllm::Op& any : graph_.ops) DLLM_CHECK_OK(std::visit([this](const auto& o) { return add(o); }, any));
    plan_experts(layout_);
    layout_.weight_bytes = hbm_.next();
    const std::uint64_t all = layout_.machine.hbm_bytes;
    layout_.step_base = all / 16 * 15 / kHbmAlign * kHbmAlign;
    layout_.step_bytes = all - layout_.step_base;
    return std::move(layout_);
  }

 private:
  std::int64_t vlen() const { return layout_.machine.vlen; }
  const LaneMap& map(ValueId id) const { return layout_.values[to_size(id)]; }
  bool present(WeightId id) const { return id != kNoId && present_[to_size(id)]; }

  WeightPlace* reserve(WeightId weight, WeightUse use) {
    if (layout_.find(weight, use) != nullptr) return nullptr;
    layout_.weights.push_back({});
    layout_.weights.back().weight = weight;
    layout_.weights.back().use = use;
    return &layout_.weights.back();
  }

  /// Everything that no program has, at once: a model may need several things.
  Expected<void> check_operators() const {
    std::vector<std::string_view> missing;
    for (const dllm::Op& any : graph_.ops)
      if (const std::string_view feature = beyond_programs(any);
          !feature.empty() && std::ranges::find(missing, feature) == missing.end())
        missing.push_back(feature);
    if (missing.empty()) return {};
    const std::string_view last = missing.back();
    missing.pop_back();
    return unsupported(missing.empty() ? fmt::format("{} is not compiled", last)
                                       : fmt::format("{} and {} are not compiled", fmt::join(missing, ", "), last),
                       "transformers without them are");
  }

  /// Mappings that are not the rule's may be another device's.
  Expected<void> check_buffers() const {
    const Mapping& mapping = layout_.mapping;
    const SramShape sram = sram_shape(layout_.machine);
    const std::int64_t unit = std::max(sram.blen, sram.hlen);
    if (mapping.weight_rows < 0 || mapping.kv_rows < 0 || mapping.weight_rows % unit != 0 ||
        mapping.kv_rows % unit != 0 ||
        2 * (mapping.weight_rows + mapping.kv_rows) + sram.ones_rows() > sram.matrix_rows)
      return Error{
          ErrorCode::kUsage,
          fmt::format("a mapping with twice {} and {} rows of matrix SRAM in multiples of {}, the device has {}",
                      mapping.weight_rows, mapping.kv_rows, unit, sram.matrix_rows),
          "npu compiler", "--set sram.matrix_tiles=N with a larger N"};
    return {};
  }

  /// In the panels of the mapping, if a buffer of weights holds one.
  Expected<MatrixShape> cut_into_panels(const LaneMap& in, const LaneMap& out, WeightId weight) const {
    const MachineConfig& m = layout_.machine;
    const MatrixShape shape = matrix_shape(layout_.mapping, sram_shape(m), out.used(), in.used());
    if (shape.panel * shape.k_tiles <= layout_.mram.weight_rows) return shape;
    return Error{
        ErrorCode::kUsage,
        fmt::format("{} outputs of '{}' with K = {} take {} rows of matrix SRAM, a weight buffer has {}", m.blen,
                    name(weight), shape.k_tiles * m.mlen, shape.panel * shape.k_tiles, layout_.mram.weight_rows),
        "npu compiler", "--set sram.matrix_tiles=N with a larger N"};
  }

  Expected<void> matrix(WeightId weight, const LaneMap& in, const LaneMap& out) {
    WeightPlace* place = reserve(weight, WeightUse::kMatrix);
    if (place == nullptr) return {};
    const MachineConfig& m = layout_.machine;
    place->in = in;
    place->out = out;
    MatrixShape& shape = place->matrix;
    DLLM_TRY(shape, cut_into_panels(in, out, weight));
    if (shape.k_tiles * m.mlen >> m.contraction_bits != 0)
      return Error{ErrorCode::kUsage,
                   fmt::format("'{}': {} products per output exceed the accumulators' 2^{}", name(weight),
                               shape.k_tiles * m.mlen, m.contraction_bits),
                   "npu compiler", ""};
    place->tensor = hbm_.tensor(static_cast<std::uint64_t>(shape.n * shape.k_tiles * m.mlen), m.weight);
    return {};
  }

  void row(WeightId weight, const LaneMap& out, WeightUse use) {
    WeightPlace* place = reserve(weight, use);
    if (place == nullptr) return;
    place->out = out;
    const std::int64_t lanes = use == WeightUse::kHeadRow ? round_up(out.hlen, vlen()) : layout_.slabs(out) * vlen();
    const std::int64_t rows = use == WeightUse::kTable ? graph_.weight(weight).shape[1] : 1;
    place->tensor = hbm_.tensor(static_cast<std::uint64_t>(rows * lanes), layout_.machine.lane_format());
  }

  Expected<void> add(const op::Embed& o) {
    row(o.table, map(o.out), WeightUse::kTable);
    return {};
  }
  Expected<void> add(const op::Scale& o) {
    for (const WeightId number : {o.context, o.canvas})
      if (number != kNoId) row(number, LaneMap{.width = 1}, WeightUse::kNumber);
    return {};
  }
  Expected<void> add(const op::RmsNorm& o) {
    if (o.gain != kNoId) row(o.gain, map(o.x), o.groups > 1 ? WeightUse::kHeadRow : WeightUse::kRow);
    return {};
  }
  Expected<void> add(const op::LayerNorm& o) {
    row(o.gain, map(o.x), WeightUse::kRow);
    row(o.bias, map(o.x), WeightUse::kRow);
    return {};
  }
  Expected<void> add(const op::Linear& o) {
    if (present(o.bias)) row(o.bias, map(o.out), WeightUse::kRow);
    return matrix(o.weight, map(o.x), map(o.out));
  }
  Expected<void> add(const op::ScoreHead& o) {
    const LaneMap logits{.width = graph_.weight(o.weight).shape[1]};
    if (present(o.bias)) row(o.bias, logits, WeightUse::kRow);
    return matrix(o.weight, map(o.x), logits);
  }
  Expected<void> add(const op::Rope& o) {
    if (std::ranges::any_of(layout_.ropes, [&](const RopePlace& r) { return r.serves(o); })) return {};
    RopePlace place;
    place.spec = o;
    if (!present(o.factors)) place.spec.factors = kNoId;
    place.distance = o.dims / 2;
    static_cast<RopeForm&>(place) = rope_form(o, layout_.machine.hlen, vlen());
    if (o.head_dim > layout_.machine.hlen && !place.halves && o.dims > vlen())
      return unsupported(fmt::format("RoPE of {} of {} lanes, which are neither two rows of VLEN {} nor within one",
                                     o.dims, o.head_dim, vlen()),
                         o.dims == o.head_dim ? fmt::format("--set array.vlen={}", place.distance)
                                              : "a device whose array.hlen holds a head");
    place.tensor = hbm_.tensor(static_cast<std::uint64_t>(layout_.positions * place.tables * vlen()),
                               layout_.machine.lane_format());
    layout_.ropes.push_back(place);
    return {};
  }
  Expected<void> add(const op::Attention& o) {
    const SramShape sram = sram_shape(layout_.machine);
    const std::int64_t own = chunk_tiles(layout_.mapping, sram, o.head_dim);
    layout_.chunk_tiles = std::exchange(attends_, true) ? std::min(layout_.chunk_tiles, own) : own;
    if (layout_.chunk_tiles < 1)
      return Error{ErrorCode::kUsage,
                   fmt::format("one tile of {} keys does not fit: {} rows of vector SRAM, {} rows per K/V buffer",
                               key_tile(sram, o.head_dim), sram.vector_rows, layout_.mram.kv_rows),
                   "npu compiler", "--set sram.vector_rows=N or sram.matrix_tiles=N with a larger N"};
    return {};
  }
  Expected<void> add(const op::Route& o) {
    const std::int64_t experts = map(o.logits).width;
    if (experts > vlen() && o.capacity > 0)
      return unsupported(
          fmt::format("blocks of rows that choose {} of {} experts, whose scores do not fit into a row of {} lanes",
                      o.capacity, experts, vlen()),
          "a device with more lanes");
    if (o.groups > 1 && experts / o.groups > vlen())
      return unsupported(fmt::format("groups of {} experts in rows of {} lanes", experts / o.groups, vlen()),
                         "a device with more lanes");
    if (o.groups > 1 && experts / o.groups != power_of_two(experts / o.groups))
      return unsupported(
          fmt::format("{} groups of {} experts: sections of lanes are powers of two", o.groups, experts / o.groups));
    if (present(o.bias)) row(o.bias, map(o.logits), WeightUse::kRow);
    if (o.expert_scale != kNoId) row(o.expert_scale, map(o.logits), WeightUse::kRow);
    return {};
  }
  Expected<void> add(const op::Experts& o) {
    if (o.activation != Activation::kSilu && o.activation != Activation::kGeluTanh)
      return unsupported("experts with an activation other than SiLU and GELU's tanh form are not compiled");
    const LaneMap inner{.width = graph_.weight(o.gate).shape[1]};
    const std::array stacks = {std::tuple{o.gate, map(o.x), inner}, std::tuple{o.up, map(o.x), inner},
                               std::tuple{o.down, inner, map(o.out)}};
    std::int64_t rows = 0;
    for (const auto& [weight, in, out] : stacks) {
      const MatrixShape shape = expert_shape(in, out, weight == o.down);
      rows += shape.n * shape.k_tiles;
    }
    const bool streamed = rows > 2 * layout_.mram.weight_rows;
    for (const auto& [weight, in, out] : stacks) DLLM_CHECK_OK(stack(weight, in, out, weight == o.down, streamed));
    if (!streamed) layout_.mram.expert_slot_rows = std::max(layout_.mram.expert_slot_rows, rows);
    return {};
  }
  /// One panel. `pack`: outputs may share rows.
  MatrixShape expert_shape(const LaneMap& in, const LaneMap& out, bool pack) const {
    const MachineConfig& m = layout_.machine;
    MatrixShape shape;
    const std::int64_t block = std::max({m.weight.block, m.matrix_input.block, 1});
    if (pack) shape.parts = packed_outputs(sram_shape(m), in.used(), out.used(), block);
    shape.n = shape.panel = round_up(out.used(), shape.parts * m.blen) / shape.parts;
    shape.k_tiles = ceil_div(in.used(), m.mlen);
    return shape;
  }
  /// One matrix per expert.
  Expected<void> stack(WeightId weight, const LaneMap& in, const LaneMap& out, bool pack, bool streamed) {
    WeightPlace* place = reserve(weight, WeightUse::kMatrix);
    if (place == nullptr) return {};
    const MachineConfig& m = layout_.machine;
    place->in = in;
    place->out = out;
    place->experts = graph_.weight(weight).shape[2];
    place->streamed = streamed;
    MatrixShape& shape = place->matrix;
    shape = expert_shape(in, out, pack && !streamed);
    if (streamed) {
      DLLM_TRY(shape, cut_into_panels(in, out, weight));
    }
    place->expert_stride = shape.n * shape.k_tiles * m.mlen;
    if (shape.k_tiles * m.mlen >> m.contraction_bits != 0)
      return Error{ErrorCode::kUsage,
                   fmt::format("'{}': {} products per output exceed the accumulators' 2^{}", name(weight),
                               shape.k_tiles * m.mlen, m.contraction_bits),
                   "npu compiler", ""};
    place->tensor = hbm_.tensor(static_cast<std::uint64_t>(place->experts * place->expert_stride), m.weight);
    if (std::max(place->tensor.elements, place->tensor.scale_offset) >> 32 != 0)
      return unsupported(fmt::format("'{}': {} elements are more than offsets of 32 bits reach", name(weight),
                                     place->tensor.elements));
    return {};
  }
  template <class O>
  Expected<void> add(const O&) {
    return {};
  }

  const std::string& name(WeightId id) const { return graph_.weight(id).name; }

  const Graph& graph_;
  const std::vector<bool>& present_;
  ModelLayout layout_;
  Allocator hbm_;
  bool attends_ = false;  ///< there has been an attention
};

}  // namespace

bool RopePlace::serves(const op::Rope& o) const {
  return spec.head_dim == o.head_dim && spec.layout == o.layout && spec.turns_like(o) &&
         (spec.factors == o.factors || spec.factors == kNoId);
}

const WeightPlace* ModelLayout::find(WeightId weight, WeightUse use) const {
  for (const WeightPlace& place : weights)
    if (place.weight == weight && place.use == use) return &place;
  return nullptr;
}

Expected<ModelLayout> place_model(const Graph& graph, const std::vector<bool>& present, const MachineConfig& machine,
                                  std::int64_t positions, const Mapping* mapping) {
  DLLM_CHECK_OK(machine.validate());
  return LayoutBuilder(graph, present, machine, positions, mapping).build();
}

Expected<void> check_weights(const ModelLayout& layout, std::uint64_t bytes) {
  if (bytes <= layout.step_base) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("the weights take {} bytes, the device's memory has {} for them", bytes, layout.step_base),
               "npu compiler", "a device with more stacks, or a narrower weight format"};
}

std::uint64_t rope_bytes(const ModelLayout& layout, std::int64_t positions) {
  Allocator hbm;
  for (const RopePlace& place : layout.ropes)
    hbm.tensor(static_cast<std::uint64_t>(positions * place.tables * layout.machine.vlen),
               layout.machine.lane_format());
  return hbm.next();
}

Expected<ModelLayout> make_layout(const Graph& graph, const std::vector<bool>& present, const MachineConfig& machine,
                                  std::int64_t positions, const Mapping* mapping) {
  DLLM_TRY(ModelLayout layout, place_model(graph, present, machine, positions, mapping));
  DLLM_CHECK_OK(check_weights(layout, layout.weight_bytes));
  return layout;
}

static std::int64_t query_slabs(const Graph& graph, const ModelLayout& layout, std::int32_t layer) {
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Attention>(&any); o != nullptr && o->layer == layer)
      return layout.slabs(layout.values[to_size(o->q)]);
  return 0;
}

Expected<KvLayout> kv_layout(const Graph& graph, const ModelLayout& layout, std::int64_t capacity) {
  const MachineConfig& m = layout.machine;
  if (capacity < 1 || capacity > layout.positions)
    return Error{ErrorCode::kUsage,
                 fmt::format("a cache of {} positions, the tables reach to {}", capacity, layout.positions),
                 "npu compiler", ""};
  KvLayout result;
  result.capacity = round_up(capacity, layout.key_tile);
  for (const dllm::Op& any : graph.ops) {
    const auto* o = std::get_if<op::StoreKv>(&any);
    if (o == nullptr) continue;
    KvPlace place;
    place.layer = o->layer;
    place.map = layout.values[to_size(o->k)];
    place.slabs = layout.slabs(place.map);
    const auto elements = static_cast<std::uint64_t>(place.slabs * result.capacity * m.vlen);
    place.scale_offset = m.vector_kv.element_bytes(elements);
    const std::uint64_t bytes =
        (place.scale_offset + m.vector_kv.scale_bytes(elements) + kHbmAlign - 1) / kHbmAlign * kHbmAlign;
    place.k_offset = result.bytes;
    place.v_offset = result.bytes + bytes;
    result.bytes += 2 * bytes;
    if (m.smoothing.any()) {
      const std::int64_t rows = KvFactors::count(place.slabs, query_slabs(graph, layout, o->layer));
      place.factors = result.bytes;
      result.bytes += static_cast<std::uint64_t>(rows * m.vlen * 2 + static_cast<std::int64_t>(kHbmAlign) - 1) /
                      kHbmAlign * kHbmAlign;
    }
    result.layers.push_back(place);
  }
  return result;
}

}  // namespace dllm::npu
