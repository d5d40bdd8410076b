#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/try.h"
#include "npu_compiler/compiler/layout.h"

namespace dllm::npu {
namespace {

Error no_lanes(std::string what, std::string hint = "") {
  return {ErrorCode::kUnsupported, std::move(what), "npu compiler", std::move(hint)};
}

std::int64_t next_power_of_two(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

/// Slots per KV head: heads of an array row are split evenly among matrices, so their number is a power of two up to
/// MLEN / HLEN, or a multiple of that.
std::int64_t slots_for(std::int64_t group, std::int64_t array_heads) {
  const std::int64_t rounded = next_power_of_two(group);
  return rounded <= array_heads ? rounded : round_up(group, array_heads);
}

Expected<LaneMap> head_map(std::int64_t heads, std::int64_t head_dim, std::int64_t group,
                           const MachineConfig& machine) {
  const bool wide = head_dim > machine.hlen;
  if (wide && next_power_of_two(head_dim) <= machine.mlen)
    return no_lanes(fmt::format("heads of {} lanes on a device with HLEN {}", head_dim, machine.hlen),
                    fmt::format("--set array.hlen={}", next_power_of_two(head_dim)));
  // M_BTMM adds along the lanes of one head only: with HLEN below MLEN, a longer head's partial sums would remain in
  // MLEN / HLEN places.
  if (wide && machine.hlen != machine.mlen)
    return no_lanes(fmt::format("heads of {} lanes are cut into pieces of MLEN {} lanes, which HLEN {} cuts again",
                                head_dim, machine.mlen, machine.hlen),
                    fmt::format("--set array.hlen={}", machine.mlen));
  if (wide && head_dim % machine.vlen != 0)
    return no_lanes(fmt::format("heads of {} lanes are not whole rows of VLEN {}", head_dim, machine.vlen),
                    fmt::format("--set array.vlen={}", machine.mlen));
  if (machine.hlen % machine.blen != 0)
    return no_lanes(fmt::format("HLEN {} is not a multiple of BLEN {}", machine.hlen, machine.blen));
  for (const MxFormat* format : {&machine.matrix_input, &machine.matrix_kv})
    if (machine.hlen % format->block != 0)
      return no_lanes(
          fmt::format("blocks of {} do not divide the {} lanes of a head", mx_format_name(*format), machine.hlen),
          "a format with shorter blocks");
  if (machine.matrix_kv != machine.vector_kv)
    return no_lanes(fmt::format("K and V are stored as {} and read as {}", mx_format_name(machine.vector_kv),
                                mx_format_name(machine.matrix_kv)));
  return LaneMap{.width = heads * head_dim,
                 .head_dim = head_dim,
                 .group = group,
                 .slots = wide ? group : slots_for(group, machine.heads()),
                 .hlen = wide ? head_dim : machine.hlen};
}

}  // namespace

Expected<std::vector<LaneMap>> lane_maps(const Graph& graph, const MachineConfig& machine) {
  std::vector<LaneMap> maps(graph.values.size());
  for (std::size_t i = 0; i < maps.size(); ++i) maps[i].width = graph.values[i].width;
  const auto at = [&maps](ValueId id) -> LaneMap& { return maps[static_cast<std::size_t>(id)]; };
  std::map<std::int32_t, const op::Attention*> attention;
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Attention>(&any)) attention[o->layer] = o;
  std::map<ValueId, std::int64_t> interleaved;  // values that interleaved RoPE produces: its columns
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Rope>(&any); o != nullptr && o->layout == RopeLayout::kInterleaved)
      interleaved[o->out] = o->dims;
  std::map<std::int32_t, std::int64_t> of_keys;  // by layer
  // The weight of expert e in lane e, 0 where a row did not choose it: the operands of V_MUL_VV and a sum.
  for (const dllm::Op& any : graph.ops)
    if (const auto* o = std::get_if<op::Route>(&any)) at(o->out).width = at(o->logits).width;
  // Backwards: what attention reads determines how its producers write.
  for (auto any = graph.ops.rbegin(); any != graph.ops.rend(); ++any) {
    if (const auto* o = std::get_if<op::Attention>(&*any)) {
      DLLM_TRY(at(o->q), head_map(o->heads, o->head_dim, o->heads / o->kv_heads, machine));
      at(o->out) = at(o->q);
      at(o->q).interleaved = interleaved[untransformed(graph, o->q)];
    } else if (const auto* kv = std::get_if<op::StoreKv>(&*any)) {
      const auto found = attention.find(kv->layer);
      if (found == attention.end())
        return no_lanes(fmt::format("K and V of layer {} that no attention reads", kv->layer));
      DLLM_TRY(at(kv->k), head_map(found->second->kv_heads, found->second->head_dim, 1, machine));
      at(kv->v) = at(kv->k);
      at(kv->k).interleaved = of_keys[kv->layer] = interleaved[untransformed(graph, kv->k)];
    } else if (const auto* sum = std::get_if<op::Add>(&*any); sum != nullptr && at(sum->out).heads()) {
      at(sum->a) = at(sum->b) = at(sum->out);  // a product that attention reads, and what an adapter adds to it
    } else if (const auto* rope = std::get_if<op::Rope>(&*any)) {
      at(rope->x) = at(rope->out);
      if (!at(rope->x).heads()) return no_lanes("RoPE on a value that is not made of heads");
    } else if (const auto* transform = std::get_if<op::Hadamard>(&*any)) {
      at(transform->x) = at(transform->out);
    } else if (const auto* norm = std::get_if<op::RmsNorm>(&*any);
               norm != nullptr && (norm->groups > 1 || at(norm->out).heads())) {
      at(norm->x) = at(norm->out);
      // A single head, of models whose queries share one, is a group that is the whole row.
      if (!at(norm->x).heads() || at(norm->x).width != norm->groups * at(norm->x).head_dim)
        return no_lanes("RMSNorm in groups that are not the heads of attention");
    }
  }
  for (const auto& [layer, o] : attention)
    if (at(o->q).interleaved != of_keys[layer]) return no_lanes("queries and keys that RoPE turns differently");
  for (const dllm::Op& any : graph.ops) {
    const auto same = [&](ValueId a, ValueId b) { return at(a) == at(b); };
    bool fits = true;
    if (const auto* o = std::get_if<op::Add>(&any)) fits = same(o->a, o->out) && same(o->b, o->out);
    if (const auto* o = std::get_if<op::Glu>(&any))
      fits = same(o->gate, o->out) && (o->up == kNoId || same(o->up, o->out));
    if (const auto* o = std::get_if<op::GatherScored>(&any)) fits = same(o->x, o->out);
    if (const auto* o = std::get_if<op::Route>(&any)) fits = !at(o->logits).heads();
    if (const auto* o = std::get_if<op::Experts>(&any)) fits = !at(o->x).heads() && !at(o->out).heads();
    if (const auto* o = std::get_if<op::RmsNorm>(&any)) fits = same(o->x, o->out);
    if (const auto* o = std::get_if<op::LayerNorm>(&any)) fits = same(o->x, o->out);
    if (!fits) return no_lanes(fmt::format("{} of a value made of heads", op_name(any)));
  }
  return maps;
}

}  // namespace dllm::npu
