// LayerNorm (Ba et al., arXiv 1607.06450): the mean from a sum in FP32, the distances from it in place of the result,
// their squares' sum as in RMSNorm, then factor, gain and bias.

#include <array>
#include <cstddef>
#include <vector>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kPair = 2;                                               // rows that are interleaved
constexpr std::uint32_t kMean = 1, kSquares = 3, kInv = 5, kAdd = 6, kShr = 7;  // two means, two sums, constants

struct NormPlaces {
  ValuePlace x, out;
  std::int64_t gain = 0, bias = 0;  ///< rows of VRAM
  std::int64_t mask = -1;           ///< ones in the lanes of the last slab that have a column; -1: all have
  std::int64_t scratch = 0;
};

/// A row that is in work, and its registers.
struct NormRow {
  Gp x, out;
  std::uint32_t mean, squares;
};

std::vector<NormRow> norm_rows(StepContext& c, const NormPlaces& p, std::int64_t first, std::int64_t group) {
  std::vector<NormRow> rows;
  for (std::int64_t g = 0; g < group; ++g) {
    const auto f = static_cast<std::uint32_t>(g);
    rows.push_back(
        {c.e.reg(c.address(p.x.row + first + g)), c.e.reg(c.address(p.out.row + first + g)), kMean + f, kSquares + f});
  }
  return rows;
}

/// `group` rows from `first` on, interleaved, so that a sum's latency is filled with the other row's work.
void layer_rows(StepContext& c, const NormPlaces& p, std::int64_t first, std::int64_t count, std::int64_t group) {
  if (count < group) return;
  Emitter& e = c.e;
  const std::vector<NormRow> rows = norm_rows(c, p, first, group);
  const Gp gain = e.reg(), bias = e.reg(), t = e.reg(c.address(p.scratch)),
           mask = p.mask < 0 ? Gp() : e.reg(c.address(p.mask));
  const std::int64_t slabs = p.x.slabs, next = p.x.stride * c.vlen();  // out has the same rows
  const bool half = norm_shrink(c.machine.lanes) != 1.0f;
  const auto each = [&](auto emit) {
    for (const NormRow& row : rows) emit(row);
  };
  /// body(last) with the pointers at each slab in turn, and back at the first one.
  const auto by_slab = [&](bool out, auto body) {
    for (std::int64_t s = 0; s < slabs; ++s) {
      body(s + 1 == slabs);
      const std::int64_t step = s + 1 < slabs ? next : -(slabs - 1) * next;
      if (step == 0) return;
      each([&](const NormRow& r) {
        e.add(r.x, r.x, step);
        if (out) e.add(r.out, r.out, step);
      });
    }
  };
  e.loop(count / group, [&] {
    each([&](const NormRow& r) { e.load_fp(r.mean, 0), e.load_fp(r.squares, 0); });
    by_slab(false, [&](bool) {
      each([&](const NormRow& r) {
        if (half) e.vector_vf(Op::V_MUL_VF, t, r.x, kShr);
        e.reduce(Op::V_RED_SUM, r.mean, half ? t : r.x);
      });
    });
    each([&](const NormRow& r) { e.scalar(Op::S_MUL_FP, r.mean, r.mean, kInv); });
    by_slab(true, [&](bool last) {
      each([&](const NormRow& r) { e.vector_vf(Op::V_SUB_VF, r.out, r.x, r.mean); });
      if (p.mask >= 0 && last) each([&](const NormRow& r) { e.vector_vv(Op::V_MUL_VV, r.out, r.out, mask); });
      each([&](const NormRow& r) {
        norm_squares(c, t, r.out, kShr);
        e.reduce(Op::V_RED_SUM, r.squares, t);
      });
    });
    each([&](const NormRow& r) { norm_factor(e, r.squares); });
    e.load(gain, c.address(p.gain));
    e.load(bias, c.address(p.bias));
    by_slab(true, [&](bool) {
      each([&](const NormRow& r) { e.vector_vf(Op::V_MUL_VF, r.out, r.out, r.squares); });
      each([&](const NormRow& r) { e.vector_vv(Op::V_MUL_VV, r.out, r.out, gain); });
      each([&](const NormRow& r) { e.vector_vv(Op::V_ADD_VV, r.out, r.out, bias); });
      for (const Gp* at : {&gain, &bias}) e.add(*at, *at, c.vlen());
    });
    each([&](const NormRow& r) {
      for (const Gp* at : {&r.x, &r.out}) e.add(*at, *at, group * c.vlen());
    });
  });
}

}  // namespace

Expected<void> lower(StepContext& c, const op::LayerNorm& o) {
  NormPlaces p{.x = c.place(o.x), .out = {}};
  DLLM_TRY(p.out, c.place_output(o.out, std::array{o.x}));
  DLLM_TRY(const Buffer gain, c.resident(o.gain, WeightUse::kRow));
  DLLM_TRY(const Buffer bias, c.resident(o.bias, WeightUse::kRow));
  p.gain = gain.row, p.bias = bias.row;
  const std::int64_t n = c.map(o.x).width, last = n % c.vlen();
  if (last != 0) {
    std::vector<Bf16> lanes(to_size(c.vlen()), Bf16{0});
    for (std::int64_t i = 0; i < last; ++i) lanes[to_size(i)] = c.one();
    DLLM_TRY(const Buffer mask, c.constant_row(lanes));
    p.mask = mask.row;
  }
  DLLM_TRY(const Buffer scratch, c.acquire(1, "a row of intermediate results"));
  p.scratch = scratch.row;
  if (c.counts) {
    c.release(scratch);
    return {};
  }
  norm_constants(c, n, o.eps, kShr);
  const std::int64_t rows = c.value_rows(o.x), pairs = rows / kPair * kPair;
  layer_rows(c, p, 0, pairs, kPair);
  layer_rows(c, p, pairs, rows - pairs, 1);
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
