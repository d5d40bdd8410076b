#include <fmt/format.h>

#include <bit>
#include <variant>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/layout.h"

namespace dllm::npu {
namespace {

Error no_lanes(std::string what, std::string hint = "") {
  return {ErrorCode::kUnsupported, std::move(what), "npu compiler", std::move(hint)};
}

/// Heads of `head_dim` lanes.
Expected<void> check_heads(std::int64_t head_dim, const MachineConfig& machine) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(head_dim)));
  const bool wide = head_dim > machine.hlen;
  if (wide && power <= machine.mlen)
    return no_lanes(fmt::format("heads of {} lanes on a device with HLEN {}", head_dim, machine.hlen),
                    fmt::format("--set array.hlen={}", power));
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
  return {};
}

class LaneChecks {
 public:
  LaneChecks(const Graph& graph, const MachineConfig& machine, const std::vector<LaneMap>& maps)
      : graph_(graph), machine_(machine), maps_(maps) {}

  /// From what attention reads to its producers.
  Expected<void> run() {
    for (auto any = graph_.ops.rbegin(); any != graph_.ops.rend(); ++any)
      DLLM_CHECK_OK(std::visit([this](const auto& o) { return heads(o); }, *any));
    for (const dllm::Op& any : graph_.ops) {
      const auto* o = std::get_if<op::Attention>(&any);
      if (o == nullptr) continue;
      for (const dllm::Op& other : graph_.ops)
        if (const auto* kv = std::get_if<op::StoreKv>(&other);
            kv != nullptr && kv->layer == o->layer && at(kv->k).interleaved != at(o->q).interleaved)
          return no_lanes("queries and keys that RoPE turns differently");
    }
    for (const dllm::Op& any : graph_.ops)
      if (!std::visit([this](const auto& o) { return fits(o); }, any))
        return no_lanes(fmt::format("{} of a value made of heads", op_name(any)));
    return {};
  }

 private:
  const LaneMap& at(ValueId id) const { return maps_[to_size(id)]; }
  bool same(ValueId a, ValueId b) const { return at(a) == at(b); }

  Expected<void> heads(const op::Attention& o) const { return check_heads(o.head_dim, machine_); }
  Expected<void> heads(const op::StoreKv& o) const {
    if (!at(o.k).heads()) return no_lanes(fmt::format("K and V of layer {} that no attention reads", o.layer));
    return {};
  }
  Expected<void> heads(const op::Rope& o) const {
    if (!at(o.x).heads()) return no_lanes("RoPE on a value that is not made of heads");
    return {};
  }
  Expected<void> heads(const op::RmsNorm& o) const {
    if (o.groups == 1 && !at(o.out).heads()) return {};
    if (!at(o.x).heads() || at(o.x).width != o.groups * at(o.x).head_dim)
      return no_lanes("RMSNorm in groups that are not the heads of attention");
    return {};
  }
  template <class O>
  Expected<void> heads(const O&) const {
    return {};
  }

  bool fits(const op::Add& o) const { return same(o.a, o.out) && same(o.b, o.out); }
  bool fits(const op::Glu& o) const { return same(o.gate, o.out) && (o.up == kNoId || same(o.up, o.out)); }
  bool fits(const op::Scale& o) const { return same(o.x, o.out) && !at(o.out).heads(); }
  bool fits(const op::Select& o) const { return same(o.canvas, o.out) && same(o.context, o.out); }
  bool fits(const op::GatherScored& o) const { return same(o.x, o.out); }
  bool fits(const op::Route& o) const { return !at(o.logits).heads(); }
  bool fits(const op::Experts& o) const { return !at(o.x).heads() && !at(o.out).heads(); }
  bool fits(const op::RmsNorm& o) const { return same(o.x, o.out); }
  bool fits(const op::LayerNorm& o) const { return same(o.x, o.out); }
  template <class O>
  bool fits(const O&) const {
    return true;
  }

  const Graph& graph_;
  const MachineConfig& machine_;
  const std::vector<LaneMap>& maps_;
};

}  // namespace

Expected<std::vector<LaneMap>> lane_maps(const Graph& graph, const MachineConfig& machine) {
  std::vector<LaneMap> maps = assign_lanes(graph, machine.mlen, machine.hlen);
  DLLM_CHECK_OK(LaneChecks(graph, machine, maps).run());
  return maps;
}

}  // namespace dllm::npu
