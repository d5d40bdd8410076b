// Operators that work on each row alone, slab by slab.

#include <array>

#include "base/try.h"
#include "npu/compiler/context.h"

namespace dllm::npu {

Expected<void> lower(StepContext& c, const op::Add& o) {
  const ValuePlace a = c.place(o.a), b = c.place(o.b);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.a, o.b}));
  c.for_rows(c.value_rows(o.out), std::array{a, b, out}, {},
             [&](std::span<const Gp> p) { c.e.vector_vv(Op::V_ADD_VV, p[2], p[0], p[1]); });
  return {};
}

namespace {

constexpr std::uint32_t kOne = 1;  // f register

}  // namespace

void swiglu_constants(Emitter& e) { e.load_fp(kOne, kBf16One); }

void swiglu_row(Emitter& e, const Gp& t, const Gp& gate, const Gp& up, const Gp& out) {
  e.vector_vf(Op::V_SUB_VF, t, gate, 0, 1);  // f0 - gate
  e.vector_v(Op::V_EXP_V, t, t);
  e.vector_vf(Op::V_ADD_VF, t, t, kOne);
  e.vector_v(Op::V_RECI_V, t, t);
  e.vector_vv(Op::V_MUL_VV, t, t, gate);
  e.vector_vv(Op::V_MUL_VV, out, t, up);
}

Expected<void> lower(StepContext& c, const op::SwiGlu& o) {
  const ValuePlace gate = c.place(o.gate), up = c.place(o.up);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.gate, o.up}));
  DLLM_TRY(const Buffer scratch, c.acquire(1, "a row of intermediate results"));
  swiglu_constants(c.e);
  const Gp t = c.e.reg(c.address(scratch.row));
  c.for_rows(c.value_rows(o.out), std::array{gate, up, out}, {},
             [&](std::span<const Gp> p) { swiglu_row(c.e, t, p[0], p[1], p[2]); });
  c.release(scratch);
  return {};
}

/// out = x cos + rotated x sin, the signs in the tables; see RopePlace.
Expected<void> lower(StepContext& c, const op::Rope& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  const RopePlace* rope = nullptr;
  for (const RopePlace& r : c.layout.ropes)
    if (r.serves(o)) rope = &r;
  DLLM_TRY(const Buffer tables, c.rope_rows(*rope));
  DLLM_TRY(const Buffer scratch, c.acquire(2, "rows of intermediate results"));
  const auto count = static_cast<std::int64_t>(c.rows.size());
  Emitter& e = c.e;
  e.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(c.machine.hlen));
  const Gp t = e.reg(c.address(scratch.row)), up = e.reg(static_cast<std::uint32_t>(rope->distance)),
           px = e.reg(c.address(x.row)), py = e.reg(c.address(out.row)), cos = e.reg();
  const Step to_sin = e.step(count * c.vlen());
  const bool two_ways = rope->tables == 3;
  const Gp u = two_ways ? e.reg(c.address(scratch.row + 1)) : Gp(),
           down = two_ways ? e.reg(static_cast<std::uint32_t>(c.machine.hlen - rope->distance)) : Gp(), sin = e.reg();
  e.loop(x.slabs, [&] {
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
    if (x.slabs == 1) return;
    for (const Gp* p : {&px, &py}) e.add(*p, *p, (x.stride - count) * c.vlen());
  });
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
