// RMSNorm: sum of squares in FP32 (V_RED_SUM keeps it), the factor on the scalar unit, two multiplications per slab. Of
// heads: sums, factors and products are rows.

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::int64_t kTurns = 4;                                      // rows whose sums are computed at once
constexpr std::uint32_t kSum = 1, kInverse = 5, kEps = 6, kShrink = 7;  // those sums, then constants

/// Rows [first, first + count) of a value, `group` at a time, times a gain or not.
struct NormTurns {
  std::int64_t first, count, group;
  bool gained;
};

/// A turn's rows are interleaved, so that the sum's latency is filled with another row's work. They share one row for
/// their squares, because a sum reads them as they leave the multiplier.
void whole_rows(StepContext& c, const ValuePlace& x, const ValuePlace& out, const Gp& gain, const Gp& squares,
                const NormTurns& turns) {
  const std::int64_t first = turns.first, count = turns.count, group = turns.group;
  if (count < group) return;
  Emitter& e = c.e;
  struct Row {
    Gp x, out;
    std::uint32_t f;
  };
  std::vector<Row> rows;
  for (std::int64_t g = 0; g < group; ++g)
    rows.push_back({e.reg(c.address(x.row + first + g)), e.reg(c.address(out.row + first + g)),
                    kSum + static_cast<std::uint32_t>(g)});
  const AddressStride next = e.step(x.stride * c.vlen());  // out has the same rows
  const Gp g = e.reg();
  const auto each = [&](auto emit) {
    for (const Row& row : rows) emit(row);
  };
  e.loop(count / group, [&] {
    each([&](const Row& r) { e.load_fp(r.f, 0); });
    for (std::int64_t s = 0; s < x.slabs; ++s)
      each([&](const Row& r) {
        norm_squares(c, squares, r.x, kShrink);
        e.reduce(Op::V_RED_SUM, r.f, squares);
        if (s + 1 == x.slabs) return;
        e.advance(r.x, next);
        e.advance(r.out, next);
      });
    each([&](const Row& r) { norm_factor(e, r.f); });
    // The slabs backwards: the pointers are at the last one.
    if (turns.gained) e.add(g, gain, (x.slabs - 1) * c.vlen());
    for (std::int64_t s = x.slabs - 1; s >= 0; --s) {
      each([&](const Row& r) { e.vector_vf(Op::V_MUL_VF, r.out, r.x, r.f); });
      if (turns.gained) each([&](const Row& r) { e.vector_vv(Op::V_MUL_VV, r.out, r.out, g); });
      if (s == 0) break;
      each([&](const Row& r) {
        e.retreat(r.x, next);
        e.retreat(r.out, next);
      });
      if (turns.gained) e.add(g, g, -c.vlen());
    }
    each([&](const Row& r) {
      e.add(r.x, r.x, group * c.vlen());
      e.add(r.out, r.out, group * c.vlen());
    });
  });
}

/// All heads of a row at once: a head's lanes share the sum of their squares. Four rows are interleaved to hide the
/// latencies of sum, root and reciprocal.
void heads(StepContext& c, const ValuePlace& x, const ValuePlace& out, const Gp& gain, std::int64_t scratch,
           const NormTurns& turns) {
  const std::int64_t first = turns.first, count = turns.count, group = turns.group;
  if (count < group) return;
  Emitter& e = c.e;
  struct Row {
    Gp x, out, t;
  };
  std::vector<Row> rows;
  for (std::int64_t g = 0; g < group; ++g)
    rows.push_back(
        {e.reg(c.address(x.row + first + g)), e.reg(c.address(out.row + first + g)), e.reg(c.address(scratch + g))});
  const auto each = [&](auto emit) {
    for (const Row& row : rows) emit(row);
  };
  // After the sums two rows alternate: a result of one or two cycles is then read as it leaves its pipe, instead of
  // through a port of vector SRAM.
  const auto pairs = [&](auto... emit) {
    for (std::size_t at = 0; at < rows.size(); at += 2)
      (std::ranges::for_each(std::span(rows).subspan(at, std::min<std::size_t>(2, rows.size() - at)), emit), ...);
  };
  e.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(c.machine.hlen));
  e.loop(x.slabs, [&] {
    e.loop(count / group, [&] {
      each([&](const Row& r) {
        norm_squares(c, r.t, r.x, kShrink);
        e.vector_v(Op::V_RED_SUM_SEG, r.t, r.t);
      });
      pairs([&](const Row& r) { e.vector_vf(Op::V_MUL_VF, r.t, r.t, kInverse); },
            [&](const Row& r) { e.vector_vf(Op::V_ADD_VF, r.t, r.t, kEps); },
            [&](const Row& r) { e.vector_v(Op::V_SQRT_V, r.t, r.t); },
            [&](const Row& r) { e.vector_v(Op::V_RECI_V, r.t, r.t); },
            [&](const Row& r) { e.vector_vv(Op::V_MUL_VV, r.out, r.x, r.t); },
            [&](const Row& r) {
              if (turns.gained) e.vector_vv(Op::V_MUL_VV, r.out, r.out, gain);
            });
      each([&](const Row& r) {
        for (const Gp* p : {&r.x, &r.out}) e.add(*p, *p, group * c.vlen());
      });
    });
    if (x.slabs == 1) return;
    each([&](const Row& r) {
      for (const Gp* p : {&r.x, &r.out}) e.add(*p, *p, (x.stride - count / group * group) * c.vlen());
    });
  });
}

/// Heads of whole slabs, head by head and row by row.
void long_heads(StepContext& c, const ValuePlace& x, const ValuePlace& out, const std::optional<Buffer>& gain,
                const Gp& scratch, std::int64_t rows, std::int64_t head_slabs) {
  Emitter& e = c.e;
  const Gp px = e.reg(c.address(x.row)), py = e.reg(c.address(out.row)), g = e.reg();
  const AddressStride next = e.step(x.stride * c.vlen());  // out has the same rows
  e.loop(x.slabs / head_slabs, [&] {
    e.loop(rows, [&] {
      e.load_fp(kSum, 0);
      for (std::int64_t s = 0; s < head_slabs; ++s) {
        norm_squares(c, scratch, px, kShrink);
        e.reduce(Op::V_RED_SUM, kSum, scratch);
        if (s + 1 < head_slabs) e.advance(px, next);
      }
      norm_factor(e, kSum);
      // Backwards: x's pointer is at the last slab.
      if (gain) e.load(g, c.address(gain->row + head_slabs - 1));
      e.add(py, py, (head_slabs - 1) * x.stride * c.vlen());
      for (std::int64_t s = head_slabs - 1; s >= 0; --s) {
        e.vector_vf(Op::V_MUL_VF, py, px, kSum);
        if (gain) e.vector_vv(Op::V_MUL_VV, py, py, g);
        if (s == 0) break;
        e.retreat(px, next);
        e.retreat(py, next);
        if (gain) e.add(g, g, -c.vlen());
      }
      e.add(px, px, c.vlen());
      e.add(py, py, c.vlen());
    });
    for (const Gp* p : {&px, &py}) e.add(*p, *p, (head_slabs * x.stride - rows) * c.vlen());
  });
}

}  // namespace

void norm_constants(StepContext& c, std::int64_t n, float eps, std::uint32_t shrink) {
  const float squares = norm_shrink(c.machine.lanes);
  c.e.load_fp(kInverse, c.number(1.0f / (squares * static_cast<float>(n))));
  c.e.load_fp(kEps, c.number(eps));
  if (squares != 1.0f) c.e.load_fp(shrink, c.number(squares));
}

void norm_squares(StepContext& c, const Gp& out, const Gp& x, std::uint32_t shrink) {
  if (norm_shrink(c.machine.lanes) == 1.0f) return c.e.vector_vv(Op::V_MUL_VV, out, x, x);
  c.e.vector_vf(Op::V_MUL_VF, out, x, shrink);
  c.e.vector_vv(Op::V_MUL_VV, out, out, x);
}

void norm_factor(Emitter& e, std::uint32_t f) {
  e.scalar(Op::S_MUL_FP, f, f, kInverse);
  e.scalar(Op::S_ADD_FP, f, f, kEps);
  e.scalar(Op::S_SQRT_FP, f, f);
  e.scalar(Op::S_RECI_FP, f, f);
}

Expected<void> lower(StepContext& c, const op::RmsNorm& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  const bool by_head = o.groups > 1, by_long_head = by_head && c.map(o.x).hlen > c.machine.hlen;
  std::optional<Buffer> gain;
  if (o.gain != kNoId) {
    DLLM_TRY(gain, c.resident(o.gain, by_head ? WeightUse::kHeadRow : WeightUse::kRow));
  }
  DLLM_TRY(const Buffer scratch, c.acquire(kTurns, "rows of intermediate results"));
  if (c.counts) {
    c.release(scratch);
    return {};
  }
  const std::int64_t n = by_head ? c.map(o.x).head_dim : c.map(o.x).width;
  norm_constants(c, n, o.eps, kShrink);
  const Gp g = gain ? c.e.reg(c.address(gain->row)) : Gp(),
           t = by_head && !by_long_head ? Gp() : c.e.reg(c.address(scratch.row));
  const std::int64_t rows = c.value_rows(o.x), fours = rows / kTurns * kTurns;
  if (by_long_head) {
    long_heads(c, x, out, gain, t, rows, c.map(o.x).hlen / c.vlen());
  } else if (by_head) {
    heads(c, x, out, g, scratch.row, {0, fours, kTurns, gain.has_value()});
    heads(c, x, out, g, scratch.row, {fours, rows - fours, 1, gain.has_value()});
  } else {
    whole_rows(c, x, out, g, t, {0, fours, kTurns, gain.has_value()});
    whole_rows(c, x, out, g, t, {fours, rows - fours, 1, gain.has_value()});
  }
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
