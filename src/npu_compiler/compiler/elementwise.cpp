// Operators that process each row independently, slab by slab.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {

Expected<void> lower(StepContext& c, const op::Add& o) {
  const ValuePlace a = c.place(o.a), b = c.place(o.b);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.a, o.b}));
  if (c.counts) return {};
  c.for_rows(c.value_rows(o.out), std::array{a, b, out}, {},
             [&](std::span<const Gp> p) { c.e.vector_vv(Op::V_ADD_VV, p[2], p[0], p[1]); });
  return {};
}

namespace {

constexpr std::uint32_t kOneRegister = 7;  // f register; the norms in a product's shadow use the others

}  // namespace

void swiglu_constants(StepContext& c) { c.e.load_fp(kOneRegister, c.one()); }

void swiglu_row(Emitter& e, const Gp& t, const Gp& gate, const Gp& up, const Gp& out) {
  e.vector_vf(Op::V_SUB_VF, t, gate, 0, 1);  // f0 - gate
  e.vector_v(Op::V_EXP_V, t, t);
  e.vector_vf(Op::V_ADD_VF, t, t, kOneRegister);
  e.vector_v(Op::V_RECI_V, t, t);
  e.vector_vv(Op::V_MUL_VV, t, t, gate);
  e.vector_vv(Op::V_MUL_VV, out, t, up);
}

void swiglu_rows(StepContext& c, std::int64_t count, const Gp& gate, const Gp& up, std::int64_t scratch) {
  Emitter& e = c.e;
  struct Row {
    const Gp *gate, *up;
    Gp t;
  };
  const Gp other_gate = e.reg(), other_up = e.reg();
  const Row rows[] = {{&gate, &up, e.reg(c.address(scratch))}, {&other_gate, &other_up, e.reg(c.address(scratch + 1))}};
  e.add(other_gate, gate, c.vlen());
  e.add(other_up, up, c.vlen());
  e.loop(count / 2, [&] {
    for (const Row& r : rows) e.vector_vf(Op::V_SUB_VF, r.t, *r.gate, 0, 1);
    for (const Row& r : rows) e.vector_v(Op::V_EXP_V, r.t, r.t);
    for (const Row& r : rows) e.vector_vf(Op::V_ADD_VF, r.t, r.t, kOneRegister);
    for (const Row& r : rows) e.vector_v(Op::V_RECI_V, r.t, r.t);
    for (const Row& r : rows) e.vector_vv(Op::V_MUL_VV, r.t, r.t, *r.gate);
    for (const Row& r : rows) e.vector_vv(Op::V_MUL_VV, *r.gate, r.t, *r.up);
    for (const Row& r : rows)
      for (const Gp* p : {r.gate, r.up}) e.add(*p, *p, 2 * c.vlen());
  });
  if (count % 2 == 0) return;
  swiglu_row(e, rows[0].t, gate, up, gate);
  for (const Gp* p : {&gate, &up}) e.add(*p, *p, c.vlen());
}

Expected<void> lower(StepContext& c, const op::Glu& o) {
  if (o.activation != Activation::kSilu || o.up == kNoId) return lower_activation(c, o);
  const ValuePlace gate = c.place(o.gate), up = c.place(o.up);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.gate, o.up}));
  DLLM_TRY(const Buffer scratch, c.acquire(1, "a row of intermediate results"));
  if (c.counts) {
    c.release(scratch);
    return {};
  }
  swiglu_constants(c);
  const Gp t = c.e.reg(c.address(scratch.row));
  c.for_rows(c.value_rows(o.out), std::array{gate, up, out}, {},
             [&](std::span<const Gp> p) { swiglu_row(c.e, t, p[0], p[1], p[2]); });
  c.release(scratch);
  return {};
}

/// In place, one rotation, two rows at a time.
static void rotate_pairs(StepContext& c, const ValuePlace& x, std::int64_t tables, std::int64_t scratch,
                         const RopePlace& rope) {
  Emitter& e = c.e;
  const auto count = static_cast<std::int64_t>(c.rows.size());
  struct Row {
    Gp x, cos, sin, t;
  };
  Row rows[2];
  for (std::int64_t g = 0; g < 2; ++g)
    rows[g] = {e.reg(c.address(x.row + g)), e.reg(), e.reg(), e.reg(c.address(scratch + g))};
  const Gp up = e.reg(static_cast<std::uint32_t>(rope.distance));
  e.loop(x.slabs / rope.slabs, [&] {
    for (std::int64_t g = 0; g < 2; ++g) {
      e.load(rows[g].cos, c.address(tables + g));
      e.load(rows[g].sin, c.address(tables + count + g));
    }
    e.loop(count / 2, [&] {
      for (const Row& r : rows) e.shift(r.t, r.x, up, 2);
      for (const Row& r : rows) e.vector_vv(Op::V_MUL_VV, r.t, r.t, r.sin);
      for (const Row& r : rows) e.vector_vv(Op::V_MUL_VV, r.x, r.x, r.cos);
      for (const Row& r : rows) e.vector_vv(Op::V_ADD_VV, r.x, r.x, r.t);
      for (const Row& r : rows)
        for (const Gp* p : {&r.x, &r.cos, &r.sin}) e.add(*p, *p, 2 * c.vlen());
    });
    if (x.slabs == rope.slabs) return;
    for (const Row& r : rows) e.add(r.x, r.x, (rope.slabs * x.stride - count) * c.vlen());
  });
}

Expected<void> stream_rope(StepContext& c, const Phase& phase) {
  const auto& o = std::get<op::Rope>(c.graph.ops[phase.streamed]);
  const auto rope = std::ranges::find_if(c.layout.ropes, [&](const RopePlace& place) { return place.serves(o); });
  DLLM_TRY(const Buffer tables, c.rope_rows(*rope));
  c.alias(o.out, o.x);
  if (c.counts) return {};
  c.streams.push_back(rope_work(c, c.place(o.x), rope->distance, tables, c.work_word()));
  if (phase.stored_by != Phase::kNone) {
    const auto* const store = &std::get<op::StoreKv>(c.graph.ops[phase.stored_by]);
    for (const SequenceSpec& s : c.spec.sequences) DLLM_CHECK_OK(c.kv_place(s.capacity, store->layer));
    c.streams.back().after = [&c, store] {
      [[maybe_unused]] const Expected<void> stored = store_rows(c, *store, false);
      assert(stored && "kv_place() has found its places");
      c.keys_stored.insert(store);
    };
  }
  c.e.store_int(Gp(), Gp(), scratch_word(c.machine, c.streams.back().word));
  return {};
}

/// The slabs that no lane of a head longer than HLEN rotates, to another place.
static void copy_unrotated(StepContext& c, const ValuePlace& x, const ValuePlace& out, std::int64_t head_slabs) {
  const auto count = static_cast<std::int64_t>(c.rows.size());
  c.e.load_fp(kOneRegister, c.one());
  for (std::int64_t slab = 0; slab < x.slabs; ++slab) {
    if (slab % head_slabs == 0) continue;
    const Gp from = c.e.reg(c.address(x.row + slab * x.stride)), to = c.e.reg(c.address(out.row + slab * out.stride));
    c.e.loop(count, [&] {
      c.e.vector_vf(Op::V_MUL_VF, to, from, kOneRegister);
      for (const Gp* p : {&from, &to}) c.e.add(*p, *p, c.vlen());
    });
  }
}

Expected<void> lower(StepContext& c, const op::Hadamard& o) {
  const LaneMap& lanes = c.map(o.out);
  const auto order = static_cast<std::uint32_t>(o.order);
  if (!std::has_single_bit(order) || o.order > c.vlen() || (lanes.heads() && lanes.hlen % o.order != 0))
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("a Hadamard transform of order {} is not compiled: C_HADAMARD_TRANSFORM has powers of two up "
                    "to VLEN {}, of heads up to HLEN {}",
                    o.order, c.vlen(), c.machine.hlen),
        "npu compiler", "dllm quantize --rotate-order N, or --rotate offline"};
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  if (c.counts) return {};
  c.e.set_csr(Csr::kSegmentLength, order);
  c.for_rows(c.value_rows(o.out), std::array{x, out}, {},
             [&](std::span<const Gp> p) { c.e.vector_v(Op::C_HADAMARD_TRANSFORM, p[1], p[0]); });
  return {};
}

/// out = x cos + rotated x sin, with the signs in the tables; see RopePlace.
Expected<void> lower(StepContext& c, const op::Rope& o) {
  const RopePlace* rope = nullptr;
  for (const RopePlace& r : c.layout.ropes)
    if (r.serves(o)) rope = &r;
  if (rope->halves) return lower_wide(c, o, *rope);
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  DLLM_TRY(const Buffer tables, c.rope_rows(*rope));
  DLLM_TRY(const Buffer scratch, c.acquire(2, "rows of intermediate results"));
  if (c.counts) {
    c.release(scratch);
    return {};
  }
  const auto count = static_cast<std::int64_t>(c.rows.size());
  Emitter& e = c.e;
  e.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(rope->segment));
  if (x.row != out.row) copy_unrotated(c, x, out, rope->slabs);
  if (rope->tables == 2 && x.row == out.row && count % 2 == 0) {
    rotate_pairs(c, x, tables.row, scratch.row, *rope);
    c.release(scratch);
    return {};
  }
  const Gp t = e.reg(c.address(scratch.row)), up = e.reg(static_cast<std::uint32_t>(rope->distance)),
           px = e.reg(c.address(x.row)), py = e.reg(c.address(out.row)), cos = e.reg();
  const AddressStride to_sin = e.step(count * c.vlen());
  const bool two_ways = rope->tables == 3;
  const Gp u = two_ways ? e.reg(c.address(scratch.row + 1)) : Gp(),
           down = two_ways ? e.reg(static_cast<std::uint32_t>(rope->segment - rope->distance)) : Gp(), sin = e.reg();
  e.loop(x.slabs / rope->slabs, [&] {
    e.load(cos, c.address(tables.row));
    e.loop(count, [&] {
      e.advance_from(sin, cos, to_sin);
      e.shift(t, px, up, 2);
      e.vector_vv(Op::V_MUL_VV, t, t, sin);
      if (two_ways) {
        e.advance(sin, to_sin);
        e.shift(u, px, down, 2);
        e.vector_vv(Op::V_MUL_VV, u, u, sin);
        e.vector_vv(Op::V_ADD_VV, t, t, u);
      }
      e.vector_vv(Op::V_MUL_VV, py, px, cos);
      e.vector_vv(Op::V_ADD_VV, py, py, t);
      for (const Gp* p : {&px, &py, &cos}) e.add(*p, *p, c.vlen());
    });
    if (x.slabs == rope->slabs) return;
    for (const Gp* p : {&px, &py}) e.add(*p, *p, (rope->slabs * x.stride - count) * c.vlen());
  });
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
