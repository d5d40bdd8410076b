// Operators that move rows: from the embedding table, into the cache, to the LM head.

#include <array>
#include <utility>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"
#include "npu_compiler/compiler/smoothing.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kTableAddress = 3, kCacheAddress = 4;

/// Calls body(first, count) for every run of rows of a sequence with consecutive positions.
template <class Body>
void for_runs(const SequenceSpec& s, Body body) {
  for (std::size_t first = 0; first < s.positions.size();) {
    std::size_t end = first + 1;
    while (end < s.positions.size() && s.positions[end] == s.positions[end - 1] + 1) ++end;
    body(first, end - first);
    first = end;
  }
}

}  // namespace

/// The bytes that a value takes in HBM as it is in vector SRAM.
static std::uint64_t bytes_of_rows(const StepContext& c, const ValuePlace& place) {
  return static_cast<std::uint64_t>(place.stride * place.slabs * c.vlen() * 2);
}

/// Rows that the host or another model has made, as columns from `first` on.
static Expected<void> take_in(StepContext& c, ValueId id, std::int64_t first) {
  DLLM_TRY(const ValuePlace out, c.place_output(id));
  DLLM_TRY(const std::uint64_t at, c.hbm_area(bytes_of_rows(c, out), "rows from outside"));
  c.result.hidden_in.push_back({first, id, at, out.stride});
  if (!c.counts) c.move_rows(Op::H_PREFETCH_V, out, at);
  return {};
}

/// Token ids come from INT_MEM: successive diffusion steps have different tokens but the same program. A mixture of
/// tokens comes from the host, with the scale.
Expected<void> lower(StepContext& c, const op::Embed& o) {
  if (o.part == EmbedPart::kMixture) return take_in(c, o.out, kMixture);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out));
  if (c.counts) return {};
  Emitter& e = c.e;
  e.set_csr(Csr::kFormatActivation, mx_format_number(c.machine.lane_format()));
  e.set_csr(Csr::kPrefetchVRows, 1);
  e.set_address(kTableAddress, c.layout.find(o.table, WeightUse::kTable)->tensor.base);
  const Gp word = e.reg(kTokenWords + static_cast<std::uint32_t>(c.options.first_row)),
           width = e.reg(static_cast<std::uint32_t>(out.slabs * c.vlen())), row = e.reg(c.address(out.row)),
           offset = e.reg(), target = e.reg();
  const AddressStride slab = e.step(out.stride * c.vlen());
  e.loop(c.value_rows(o.out), [&] {
    e.load_int(offset, word, 0);
    e.multiply(offset, offset, width);
    e.copy(target, row);
    for (std::int64_t s = 0; s < out.slabs; ++s) {
      e.transfer(Op::H_PREFETCH_V, target, offset, kTableAddress, false, 0);
      if (s + 1 == out.slabs) break;
      e.add(offset, offset, c.vlen());
      e.advance(target, slab);
    }
    e.add(word, word, 1);
    e.add(row, row, c.vlen());
  });
  if (o.scale == 1.f) return {};
  constexpr std::uint32_t kScale = 1;  // f register
  e.load_fp(kScale, c.number(o.scale));
  c.for_rows(c.value_rows(o.out), std::array{out}, {},
             [&](std::span<const Gp> p) { e.vector_vf(Op::V_MUL_VF, p[0], p[0], kScale); });
  return {};
}

Expected<void> store_rows(StepContext& c, const op::StoreKv& o, bool value) {
  if (c.counts) return {};
  Emitter& e = c.e;
  const ValuePlace x = c.place(value ? o.v : o.k);
  std::int64_t first_row = 0;
  for (const SequenceSpec& s : c.spec.sequences) {
    DLLM_TRY(const KvPlace place, c.kv_place(s.capacity, o.layer));
    const std::int64_t capacity = round_up(s.capacity, c.layout.key_tile);
    e.set_address(kCacheAddress, s.cache + (value ? place.v_offset : place.k_offset));
    e.set_scale(place.scale_offset);
    for_runs(s, [&](std::size_t first, std::size_t count) {
      e.set_csr(Csr::kStoreVRows, static_cast<std::uint32_t>(count));
      for (std::int64_t slab = 0; slab < x.slabs; ++slab) {
        const Gp from = e.reg(c.address(x, slab, first_row + static_cast<std::int64_t>(first))),
                 to = e.reg(static_cast<std::uint32_t>((slab * capacity + s.positions[first]) * c.vlen()));
        e.transfer(Op::H_STORE_V, from, to, kCacheAddress, false, 1, value ? kValueStoreTag : kKeyStoreTag);
      }
    });
    first_row += static_cast<std::int64_t>(s.positions.size());
  }
  c.stores_pending = true;
  return {};
}

Expected<void> store_values(StepContext& c) {
  const op::StoreKv* o = std::exchange(c.values_unstored, nullptr);
  return o == nullptr ? Expected<void>{} : store_rows(c, *o, true);
}

Expected<void> lower(StepContext& c, const op::StoreKv& o) {
  if (c.machine.smoothing.any()) return store_smoothed(c, o);
  if (c.counts) return {};
  if (c.keys_stored.erase(&o) == 0) DLLM_CHECK_OK(store_rows(c, o, false));
  if (!c.overlap) return store_rows(c, o, true);
  c.values_unstored = &o;
  return {};
}

Expected<void> lower(StepContext& c, const op::HiddenIn& o) { return take_in(c, o.out, o.first); }

Expected<void> lower(StepContext& c, const op::HiddenOut& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const std::uint64_t at, c.hbm_area(bytes_of_rows(c, x), "rows as a result"));
  c.result.hidden_out.push_back({o.first, o.x, at, x.stride});
  if (!c.counts) c.move_rows(Op::H_STORE_V, x, at);
  return {};
}

Expected<void> lower(StepContext& c, const op::GatherScored& o) {
  if (c.spec.scored() == c.spec.rows()) {
    c.alias(o.out, o.x);
    return {};
  }
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out));
  if (c.counts) return {};
  Emitter& e = c.e;
  // Runs of scored rows, in the order of the plan.
  std::vector<std::int64_t> from;
  std::int64_t first_row = 0;
  for (const SequenceSpec& s : c.spec.sequences) {
    for (const std::int32_t i : s.scored) from.push_back(first_row + i);
    first_row += static_cast<std::int64_t>(s.positions.size());
  }
  for (std::size_t first = 0; first < from.size();) {
    std::size_t end = first + 1;
    while (end < from.size() && from[end] == from[end - 1] + 1) ++end;
    for (std::int64_t slab = 0; slab < x.slabs; ++slab) {
      const Gp source = e.reg(c.address(x, slab, from[first])),
               target = e.reg(c.address(out, slab, static_cast<std::int64_t>(first)));
      e.loop(static_cast<std::int64_t>(end - first), [&] {
        e.shift(target, source, Gp(), 1);  // a rotation by 0 copies bits
        e.add(source, source, c.vlen());
        e.add(target, target, c.vlen());
      });
    }
    first = end;
  }
  return {};
}

}  // namespace dllm::npu
