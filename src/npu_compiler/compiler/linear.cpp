#include <array>

#include "base/try.h"
#include "npu_compiler/compiler/context.h"

// Products of rows with a matrix: plain, with the residual addition and norm, and gate and up together.

namespace dllm::npu {

void clear_tail(StepContext& c, std::int64_t written, std::int64_t slabs, std::int64_t row, std::int64_t count) {
  if (written >= slabs * c.vlen()) return;
  const Gp at = c.e.reg(c.address(row)), all = c.e.reg(static_cast<std::uint32_t>(c.vlen()));
  c.e.loop(count, [&] {
    c.e.shift(at, at, all, 0);
    c.e.add(at, at, c.vlen());
  });
}

/// Of the next product's result.
static void clear_last_slab(StepContext& c, const ValuePlace& y) {
  if (c.counts) return;
  clear_tail(c, c.matrices[c.next_matrix]->matrix.n, y.slabs, y.row + (y.slabs - 1) * y.stride, y.stride);
}

Expected<void> lower(StepContext& c, const op::Linear& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace y, c.place_output(o.out));
  clear_last_slab(c, y);
  const MatrixSink sink{c.address(y.row), {}, [&](const Gp& slab) { c.e.add(slab, slab, y.stride * c.vlen()); }};
  lower_matrix(c, c.address(x.row), x.stride, x.stride / c.machine.blen, sink);
  if (o.bias != kNoId && c.layout.find(o.bias, WeightUse::kRow) != nullptr) {
    DLLM_TRY(const Buffer bias, c.resident(o.bias, WeightUse::kRow));
    if (c.counts) return {};
    c.for_rows(c.value_rows(o.out), std::array{y}, std::array{bias},
               [&](std::span<const Gp> p) { c.e.vector_vv(Op::V_ADD_VV, p[0], p[0], p[1]); });
  }
  return {};
}

Expected<void> lower(StepContext& c, const ResidualProduct& o) {
  const std::int32_t last = c.current, first = last - (o.norm != nullptr ? 2 : 1);
  const ValuePlace x = c.place(o.product->x);
  c.current = first;
  DLLM_TRY(const ValuePlace y, c.place_output(o.product->out));
  c.current = first + 1;
  DLLM_TRY(const ValuePlace h, c.place_output(o.sum->out, std::array{o.sum->a, o.sum->b}));
  ResidualRows rows{.a = c.place(o.sum->a), .b = c.place(o.sum->b), .h = h, .out = {}, .gain = {}};
  if (o.norm != nullptr) {
    rows.norm = o.norm;
    rows.width = c.map(o.norm->x).width;
    // The norm of a block of rows is written after the last product with that block of x: it may overwrite x.
    c.current = first;
    DLLM_TRY(rows.out, c.place_output(o.norm->out, std::array{o.product->x}));
    DLLM_TRY(rows.gain, c.resident(o.norm->gain, WeightUse::kRow));
  }
  c.current = last;
  clear_last_slab(c, y);
  RowWork work = residual_work(c, rows, c.work_word());
  work.holds = {o.sum->a, o.sum->b};
  for (const ValueId id : work.holds) c.hold(id);
  const MatrixSink sink{.first = c.address(y.row),
                        .second = {},
                        .finish_slab = [&](const Gp& slab) { c.e.add(slab, slab, y.stride * c.vlen()); },
                        .tail = std::move(work)};
  lower_matrix(c, c.address(x.row), x.stride, x.stride / c.machine.blen, sink);
  return {};
}

/// SwiGLU of the slab after which no product follows.
static void last_slab(StepContext& c, const ValuePlace& y, std::int64_t rows, const Buffer& up, const Buffer& scratch) {
  const Gp p = c.e.reg(c.address(y, y.slabs - 1, 0)), q = c.e.reg(c.address(up.row));
  swiglu_rows(c, rows, p, q, scratch.row);
}

Expected<void> lower(StepContext& c, const GatedProducts& o) {
  const ValuePlace x = c.place(o.gate->x);
  DLLM_TRY(const ValuePlace y, c.place_output(o.unit->out));
  DLLM_TRY(const Buffer up, c.acquire(y.stride, "one slab of the second factor"));
  DLLM_TRY(const Buffer scratch, c.acquire(2, "rows of intermediate results"));
  clear_last_slab(c, y);
  if (!c.counts) swiglu_constants(c);
  const std::int64_t slab_lanes = y.stride * c.vlen();
  MatrixSink sink{c.address(y.row),
                  c.address(up.row),
                  [&](const Gp& slab) { c.e.add(slab, slab, slab_lanes); },
                  [&](const Gp& block, std::int64_t first, std::int64_t count) {
                    const Gp p = c.e.reg(), q = c.e.reg();
                    c.e.load_int(q, Gp(), scratch_word(c.machine, kSlabWord));
                    c.e.subtract(q, block, q);
                    c.e.add(q, q, c.address(up.row));
                    c.e.add(p, block, -slab_lanes);
                    if (first > 0)
                      for (const Gp* pointer : {&p, &q}) c.e.add(*pointer, *pointer, first * c.vlen());
                    // A row's operations are adjacent here: results chain from pipe to pipe, and the array, which takes
                    // a port of vector SRAM in every cycle, leaves only one.
                    const Gp t = c.e.reg(c.address(scratch.row));
                    c.e.loop(count, [&] {
                      swiglu_row(c.e, t, p, q, p);
                      for (const Gp* pointer : {&p, &q}) c.e.add(*pointer, *pointer, c.vlen());
                    });
                  },
                  {},
                  {}};
  if (c.overlap) {
    RowWork work = swiglu_work(c, y.row + (y.slabs - 1) * y.stride, up.row, y.stride, c.work_word());
    work.buffers = {up, scratch};
    sink.tail = std::move(work);
  }
  lower_matrix(c, c.address(x.row), x.stride, x.stride / c.machine.blen, sink);
  if (c.overlap) return {};
  if (!c.counts) last_slab(c, y, c.value_rows(o.unit->out), up, scratch);
  c.release(up);
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
