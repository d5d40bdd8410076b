#include "npu_compiler/lowering/lanes.h"

#include <algorithm>
#include <bit>

#include "base/integers.h"
#include "base/to_size.h"
#include "npu_compiler/lowering/segments.h"

namespace dllm::npu {
namespace {

class LaneAssignment {
 public:
  LaneAssignment(const Graph& graph, std::int64_t mlen, std::int64_t hlen)
      : graph_(graph), array_heads_(std::max<std::int64_t>(1, mlen / hlen)), hlen_(hlen), maps_(graph.values.size()) {
    for (std::size_t i = 0; i < maps_.size(); ++i) maps_[i].width = graph.values[i].width;
  }

  std::vector<LaneMap> run() {
    for (const Op& any : graph_.ops) {
      if (const auto* o = std::get_if<op::Attention>(&any)) {
        readers_.resize(std::max(readers_.size(), to_size(o->layer) + 1));
        readers_[to_size(o->layer)] = o;
      }
      // The weight of expert e in lane e, 0 where a row did not choose it: the operands of V_MUL_VV and a sum.
      if (const auto* o = std::get_if<op::Route>(&any)) at(o->out).width = at(o->logits).width;
    }
    for (auto any = graph_.ops.rbegin(); any != graph_.ops.rend(); ++any)
      std::visit([this](const auto& o) { back(o); }, *any);
    return std::move(maps_);
  }

 private:
  LaneMap& at(ValueId id) { return maps_[to_size(id)]; }

  /// Slots per KV head: heads of an array row are split evenly among matrices, so their number is a power of two up to
  /// MLEN / HLEN, or a multiple of that.
  LaneMap head_map(std::int64_t heads, std::int64_t head_dim, std::int64_t group) const {
    const bool wide = head_dim > hlen_;
    const auto rounded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(group)));
    return {.width = heads * head_dim,
            .head_dim = head_dim,
            .group = group,
            .slots = wide                      ? group
                     : rounded <= array_heads_ ? rounded
                                               : round_up(group, array_heads_),
            .hlen = wide ? head_dim : hlen_};
  }
  /// What has turned a value; null: nothing.
  const op::Rope* rope_of(ValueId id) const {
    const ValueId turned = untransformed(graph_, id);
    for (const Op& any : graph_.ops)
      if (const auto* o = std::get_if<op::Rope>(&any); o != nullptr && o->out == turned) return o;
    return nullptr;
  }
  /// Columns of a head that interleaved RoPE has turned.
  std::int64_t interleaved(ValueId id) const {
    const op::Rope* const o = rope_of(id);
    return o != nullptr && o->layout == RopeLayout::kInterleaved ? o->dims : 0;
  }

  void back(const op::Attention& o) {
    at(o.q) = head_map(o.heads, o.head_dim, o.heads / o.kv_heads);
    at(o.out) = at(o.q);
    at(o.q).interleaved = interleaved(o.q);
  }
  void back(const op::StoreKv& o) {
    const op::Attention* reader = to_size(o.layer) < readers_.size() ? readers_[to_size(o.layer)] : nullptr;
    // Another graph may read them: a drafter's keys are those of its context and of its block.
    const op::Rope* const turned = reader == nullptr ? rope_of(o.k) : nullptr;
    if (reader != nullptr)
      at(o.k) = at(o.v) = head_map(reader->kv_heads, reader->head_dim, 1);
    else if (turned != nullptr)
      at(o.k) = at(o.v) = head_map(turned->heads, turned->head_dim, 1);
    else
      return;
    at(o.k).interleaved = interleaved(o.k);
  }
  /// A product that attention reads, and what an adapter adds to it.
  void back(const op::Add& o) {
    if (at(o.out).heads()) at(o.a) = at(o.b) = at(o.out);
  }
  void back(const op::Rope& o) { at(o.x) = at(o.out); }
  void back(const op::Hadamard& o) { at(o.x) = at(o.out); }
  /// A single head, of models whose queries share one, is a group that is the whole row.
  void back(const op::RmsNorm& o) {
    if (o.groups > 1 || at(o.out).heads()) at(o.x) = at(o.out);
  }
  template <class O>
  void back(const O&) {}

  const Graph& graph_;
  std::int64_t array_heads_, hlen_;
  std::vector<LaneMap> maps_;
  std::vector<const op::Attention*> readers_;  ///< by layer
};

}  // namespace

std::vector<LaneMap> assign_lanes(const Graph& graph, std::int64_t mlen, std::int64_t hlen) {
  return LaneAssignment(graph, mlen, hlen).run();
}

RopeForm rope_form(const op::Rope& rope, std::int64_t hlen, std::int64_t vlen) {
  RopeForm form{.segment = hlen};
  if (rope.head_dim > hlen) {
    form.halves = rope.dims / 2 == vlen && rope.dims == rope.head_dim;
    form.segment = vlen;
    form.slabs = rope.head_dim / vlen;
  }
  form.tables = form.halves || rope.dims == form.segment ? 2 : 3;
  return form;
}

std::int64_t waiting_bytes(const Graph& graph, const std::vector<LaneMap>& lanes, std::int64_t blen, std::int64_t vlen,
                           std::size_t at) {
  return waiting_bytes(graph, lanes, blen, vlen, waiting_values(graph, at));
}

std::int64_t waiting_bytes(const Graph& graph, const std::vector<LaneMap>& lanes, std::int64_t blen, std::int64_t vlen,
                           std::span<const ValueId> waiting) {
  std::int64_t rows = 0;
  for (const ValueId id : waiting)
    rows += round_up(graph.value(id).rows, blen) * ceil_div(lanes[to_size(id)].used(), vlen);
  return 2 * rows * vlen;
}

}  // namespace dllm::npu
