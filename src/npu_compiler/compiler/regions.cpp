// Operators whose rows depend on their region: the context, or the canvas that is being denoised.

#include <algorithm>
#include <array>
#include <span>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"

namespace dllm::npu {
namespace {

/// Calls body(canvas, first, count) for the runs of rows in one region, in order. Errors: of the body.
template <class Body>
Expected<void> for_regions(const StepContext& c, const Body& body) {
  std::int64_t first = 0;
  const auto& all = c.spec.sequences;
  for (std::size_t s = 0; s < all.size();) {
    std::int64_t count = 0;
    const bool canvas = all[s].canvas;
    for (; s < all.size() && all[s].canvas == canvas; ++s) count += static_cast<std::int64_t>(all[s].positions.size());
    DLLM_CHECK_OK(body(canvas, first, count));
    first += count;
  }
  return {};
}

/// The place of a value's rows from `first` on.
ValuePlace from_row(ValuePlace place, std::int64_t first) {
  place.row += first;
  return place;
}

}  // namespace

/// out = (x times the region's number) times the factor, each rounded; without the one or the other, only the other.
Expected<void> lower(StepContext& c, const op::Scale& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  constexpr std::uint32_t kFactor = 1;  // f register
  if (!c.counts) c.e.load_fp(kFactor, c.number(o.factor));
  return for_regions(c, [&](bool canvas, std::int64_t first, std::int64_t count) -> Expected<void> {
    const WeightId number = canvas ? o.canvas : o.context;
    Gp by;
    if (number != kNoId) {
      DLLM_TRY(const Buffer row, c.resident(number, WeightUse::kNumber));
      if (!c.counts) by = c.e.reg(c.address(row.row));
    }
    if (c.counts) return {};
    c.for_rows(count, std::array{from_row(x, first), from_row(out, first)}, {}, [&](std::span<const Gp> p) {
      if (number != kNoId) c.e.vector_vv(Op::V_MUL_VV, p[1], p[0], by);
      if (number == kNoId || o.factor != 1.f) c.e.vector_vf(Op::V_MUL_VF, p[1], number == kNoId ? p[0] : p[1], kFactor);
    });
    return {};
  });
}

/// Rows of one region are the value itself; of both, copies.
Expected<void> lower(StepContext& c, const op::Select& o) {
  const auto& all = c.spec.sequences;
  const bool canvas = all.front().canvas;
  if (std::ranges::all_of(all, [canvas](const SequenceSpec& s) { return s.canvas == canvas; })) {
    c.alias(o.out, canvas ? o.canvas : o.context);
    return {};
  }
  DLLM_TRY(const ValuePlace out, c.place_output(o.out));
  if (c.counts) return {};
  return for_regions(c, [&](bool of_canvas, std::int64_t first, std::int64_t count) -> Expected<void> {
    const ValuePlace from = from_row(c.place(of_canvas ? o.canvas : o.context), first);
    c.for_rows(count, std::array{from, from_row(out, first)}, {}, [&](std::span<const Gp> p) {
      c.e.shift(p[1], p[0], Gp(), 1);  // a rotation by 0 copies bits
    });
    return {};
  });
}

}  // namespace dllm::npu
