// Activation functions other than SwiGLU, which gated products have in their shadow (elementwise.cpp).

#include "npu_compiler/analytic/activation.h"

#include <array>
#include <vector>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kC0 = 1, kC1 = 2, kC2 = 3, kMost = 4, kUnit = 7;  // f registers

void activation_constants(StepContext& c, Activation activation) {
  const auto load = [&c](std::uint32_t f, float value) { c.e.load_fp(f, c.number(value)); };
  if (activation == Activation::kRelu) return;
  c.e.load_fp(kUnit, c.one());
  if (activation == Activation::kGeluTanh) load(kC0, kTanhForm0), load(kC1, kTanhForm1);
  if (activation == Activation::kGelu)
    load(kC0, kErfForm0), load(kC1, kErfForm1), load(kC2, kErfForm2), load(kMost, kErfFormMost);
  if (activation == Activation::kTanh) load(kC0, 2.0f), load(kC1, -2.0f);
}

/// out = activation(x), a row. `t`, `u`: rows of intermediate results. `out` may be x.
void activation_row(Emitter& e, Activation activation, const Gp& t, const Gp& u, const Gp& x, const Gp& out) {
  if (activation == Activation::kRelu) return e.vector_vf(Op::V_MAX_VF, out, x, 0);
  if (activation == Activation::kTanh) {
    e.vector_vf(Op::V_MUL_VF, u, x, kC1);
  } else if (activation == Activation::kSilu) {
    e.vector_vf(Op::V_SUB_VF, u, x, 0, 1);  // f0 - x
  } else {
    e.vector_vv(Op::V_MUL_VV, t, x, x);
    if (activation == Activation::kGelu) {
      e.vector_vf(Op::V_MIN_VF, t, t, kMost);
      e.vector_vf(Op::V_MUL_VF, u, t, kC2);
      e.vector_vf(Op::V_ADD_VF, u, u, kC1);
      e.vector_vv(Op::V_MUL_VV, u, u, t);
    } else {
      e.vector_vf(Op::V_MUL_VF, u, t, kC1);
    }
    e.vector_vf(Op::V_ADD_VF, u, u, kC0);
    e.vector_vv(Op::V_MUL_VV, u, u, x);
    e.vector_vf(Op::V_SUB_VF, u, u, 0, 1);
  }
  e.vector_v(Op::V_EXP_V, u, u);
  e.vector_vf(Op::V_ADD_VF, u, u, kUnit);
  e.vector_v(Op::V_RECI_V, u, u);
  if (activation != Activation::kTanh) return e.vector_vv(Op::V_MUL_VV, out, u, x);
  e.vector_vf(Op::V_MUL_VF, u, u, kC0);
  e.vector_vf(Op::V_SUB_VF, out, u, kUnit);
}

}  // namespace

Expected<void> lower_activation(StepContext& c, const op::Glu& o) {
  std::vector<ValuePlace> places = {c.place(o.gate)};
  std::vector<ValueId> reusable = {o.gate};
  if (o.up != kNoId) places.push_back(c.place(o.up)), reusable.push_back(o.up);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, reusable));
  places.push_back(out);
  DLLM_TRY(const Buffer scratch, c.acquire(2, "rows of intermediate results"));
  if (c.counts) {
    c.release(scratch);
    return {};
  }
  activation_constants(c, o.activation);
  const Gp t = c.e.reg(c.address(scratch.row)), u = c.e.reg(c.address(scratch.row + 1));
  c.for_rows(c.value_rows(o.out), places, {}, [&](std::span<const Gp> p) {
    // A gated result is multiplied from a row of its own: `out` may be `up`.
    const Gp& result = o.up == kNoId ? p[1] : u;
    activation_row(c.e, o.activation, t, u, p[0], result);
    if (o.up != kNoId) c.e.vector_vv(Op::V_MUL_VV, p[2], u, p[1]);
  });
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
