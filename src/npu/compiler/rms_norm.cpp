// RMSNorm: sum of squares in FP32 (V_RED_SUM keeps it), the factor on the scalar unit, two multiplications per slab.

#include <array>

#include "base/try.h"
#include "npu/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kSum = 1, kInverse = 2, kEps = 3;

/// kSum <- 1 / sqrt(kSum * 1/n + eps), each step rounded to BF16.
void factor(Emitter& e) {
  e.scalar(Op::S_MUL_FP, kSum, kSum, kInverse);
  e.scalar(Op::S_ADD_FP, kSum, kSum, kEps);
  e.scalar(Op::S_SQRT_FP, kSum, kSum);
  e.scalar(Op::S_RECI_FP, kSum, kSum);
}

void whole_rows(StepContext& c, const ValuePlace& x, const ValuePlace& out, const Gp& gain, const Gp& scratch,
                std::int64_t rows) {
  Emitter& e = c.e;
  const Gp px = e.reg(c.address(x.row)), py = e.reg(c.address(out.row)), p = e.reg(), g = e.reg(), q = e.reg();
  const Step slab = e.step(x.stride * c.vlen()), out_slab = e.step(out.stride * c.vlen());
  e.loop(rows, [&] {
    e.load_fp(kSum, 0);
    e.copy(p, px);
    for (std::int64_t s = 0; s < x.slabs; ++s) {
      e.vector_vv(Op::V_MUL_VV, scratch, p, p);
      e.reduce(Op::V_RED_SUM, kSum, scratch);
      if (s + 1 < x.slabs) e.advance(p, slab);
    }
    factor(e);
    e.copy(p, px);
    e.copy(q, py);
    e.copy(g, gain);
    for (std::int64_t s = 0; s < x.slabs; ++s) {
      e.vector_vf(Op::V_MUL_VF, q, p, kSum);
      e.vector_vv(Op::V_MUL_VV, q, q, g);
      if (s + 1 == x.slabs) break;
      e.advance(p, slab);
      e.advance(q, out_slab);
      e.add(g, g, c.vlen());
    }
    e.add(px, px, c.vlen());
    e.add(py, py, c.vlen());
  });
}

/// Heads one by one: V_MASK restricts the sum and the product to one head's lanes. There is no vector square root.
void heads(StepContext& c, const ValuePlace& x, const ValuePlace& out, const Gp& gain, const Gp& scratch,
           std::int64_t rows) {
  Emitter& e = c.e;
  const Gp px = e.reg(c.address(x.row)), py = e.reg(c.address(out.row)), mask = e.reg();
  e.loop(x.slabs, [&] {
    e.loop(rows, [&] {
      e.vector_vv(Op::V_MUL_VV, scratch, px, px);
      if (px.index() != py.index() && x.row != out.row) e.shift(py, px, Gp(), 1);
      e.load(mask, 1);
      e.loop(c.vlen() / c.machine.hlen, [&] {
        e.set_mask(mask);
        e.load_fp(kSum, 0);
        e.reduce(Op::V_RED_SUM, kSum, scratch, true);
        factor(e);
        e.vector_vf(Op::V_MUL_VF, py, py, kSum, 0, true);
        e.add(mask, mask, mask);
      });
      e.vector_vv(Op::V_MUL_VV, py, py, gain);
      e.add(px, px, c.vlen());
      e.add(py, py, c.vlen());
    });
    if (x.slabs == 1) return;
    for (const Gp* p : {&px, &py}) e.add(*p, *p, (x.stride - rows) * c.vlen());
  });
}

}  // namespace

Expected<void> lower(StepContext& c, const op::RmsNorm& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  const bool by_head = o.groups > 1;
  if (by_head && c.vlen() / c.machine.hlen > 32)
    return Error{ErrorCode::kUnsupported, "RMSNorm by heads: V_MASK has bits for 32 sections of HLEN", "npu compiler",
                 ""};
  DLLM_TRY(const Buffer gain, c.resident(o.gain, by_head ? WeightUse::kHeadRow : WeightUse::kRow));
  DLLM_TRY(const Buffer scratch, c.acquire(1, "a row of intermediate results"));
  const std::int64_t n = by_head ? c.map(o.x).head_dim : c.map(o.x).width;
  c.e.load_fp(kInverse, f32_to_bf16(1.0f / static_cast<float>(n)));
  c.e.load_fp(kEps, f32_to_bf16(o.eps));
  const Gp g = c.e.reg(c.address(gain.row)), t = c.e.reg(c.address(scratch.row));
  (by_head ? heads : whole_rows)(c, x, out, g, t, c.value_rows(o.x));
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
