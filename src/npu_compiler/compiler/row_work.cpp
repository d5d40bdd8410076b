#include "npu_compiler/compiler/row_work.h"

#include <array>
#include <utility>

#include "npu_compiler/compiler/context.h"
#include "npu_compiler/lowering/slices.h"

namespace dllm::npu {
namespace {

/// A pointer to row `row` of VRAM plus the offset of the work.
Gp pointer(StepContext& c, const Gp& offset, std::int64_t row) {
  Gp p = c.e.reg();
  c.e.add(p, offset, c.address(row));
  return p;
}

void drop(Gp gp) { (void)gp; }

/// `group` rows are interleaved, so that a sum's latency is filled with another row's work. The slabs are walked
/// forwards for the sum of squares and backwards for the products: at the turn the pointers are at the last one.
class ResidualEmitter {
 public:
  ResidualEmitter(StepContext& c, const ResidualRows& r, std::int64_t group) : c_(c), e_(c.e), r_(r), group_(group) {}

  void run(Gp offset, std::int64_t count) {
    const bool in_a = r_.h.row == r_.a.row;
    const std::int64_t last = (r_.h.slabs - 1) * r_.h.stride;
    for (std::int64_t g = 0; g < group_; ++g) {
      Row& row = rows_.emplace_back();
      row.h = pointer(c_, offset, r_.h.row + g);
      row.other = pointer(c_, offset, (in_a ? r_.b : r_.a).row + g);
      if (r_.norm != nullptr) row.out = pointer(c_, offset, r_.out.row + last + g);
      row.f = kSum + static_cast<std::uint32_t>(g);
    }
    drop(std::move(offset));
    if (r_.norm != nullptr) {
      norm_constants(c_, r_.width, r_.norm->eps, kShrink);
      squares_ = e_.reg(c_.address(c_.row_scratch.row));
      gain_ = e_.reg();
    }
    next_ = e_.step(r_.h.stride * c_.vlen());
    e_.loop(count / group_, [&] { body(in_a); });
  }

 private:
  static constexpr std::uint32_t kSum = 2, kShrink = 4;  ///< sums of at most two rows, then a constant
  struct Row {
    Gp h, other, out;
    std::uint32_t f = 0;
  };
  template <class Emit>
  void each(Emit emit) {
    for (Row& row : rows_) emit(row);
  }

  void body(bool in_a) {
    const std::int64_t slabs = r_.h.slabs, last = (slabs - 1) * r_.h.stride * c_.vlen(), rows = group_ * c_.vlen();
    const bool norm = r_.norm != nullptr;
    if (norm) each([&](Row& r) { e_.load_fp(r.f, 0); });
    const auto forwards = [&](bool more) {
      each([&](Row& r) { e_.vector_vv(Op::V_ADD_VV, r.h, in_a ? r.h : r.other, in_a ? r.other : r.h); });
      if (norm)
        each([&](Row& r) {
          norm_squares(c_, squares_, r.h, kShrink);
          e_.reduce(Op::V_RED_SUM, r.f, squares_);
        });
      if (more)
        each([&](Row& r) {
          e_.advance(r.h, next_);
          e_.advance(r.other, next_);
        });
    };
    repeat(slabs - 1, [&] { forwards(true); });
    forwards(false);
    each([&](Row& r) { e_.add(r.other, r.other, rows - last); });
    if (!norm) {
      each([&](Row& r) { e_.add(r.h, r.h, rows - last); });
      return;
    }
    each([&](Row& r) { norm_factor(e_, r.f); });
    e_.load(gain_, c_.address(r_.gain.row + slabs - 1));
    const auto backwards = [&](bool more) {
      each([&](Row& r) { e_.vector_vf(Op::V_MUL_VF, r.out, r.h, r.f); });
      each([&](Row& r) { e_.vector_vv(Op::V_MUL_VV, r.out, r.out, gain_); });
      if (!more) return;
      each([&](Row& r) {
        e_.retreat(r.h, next_);
        e_.retreat(r.out, next_);
      });
      e_.add(gain_, gain_, -c_.vlen());
    };
    repeat(slabs - 1, [&] { backwards(true); });
    backwards(false);
    each([&](Row& r) {
      e_.add(r.h, r.h, rows);
      e_.add(r.out, r.out, rows + last);
    });
  }

  /// Unrolled while the code stays short.
  void repeat(std::int64_t count, const std::function<void()>& step) {
    if (count > kUnrolled) return e_.loop(count, step);
    for (std::int64_t i = 0; i < count; ++i) step();
  }

  static constexpr std::int64_t kUnrolled = 8;
  StepContext& c_;
  Emitter& e_;
  const ResidualRows& r_;
  std::int64_t group_;
  std::vector<Row> rows_;
  Gp squares_, gain_;
  AddressStride next_;
};

}  // namespace

void emit_rows(StepContext& c, const RowWork& work, std::int64_t count) {
  if (count == 0) return;
  Gp offset = c.e.reg();
  const std::uint32_t word = scratch_word(c.machine, work.word);
  c.e.load_int(offset, Gp(), word);
  {
    const Gp next = c.e.reg();
    c.e.add(next, offset, count * c.vlen());
    c.e.store_int(next, Gp(), word);
  }
  work.emit(std::move(offset), count);
}

RowWork residual_work(StepContext& c, const ResidualRows& r, std::uint32_t word) {
  const std::int64_t shrunk = norm_shrink(c.machine.lanes) != 1.0f ? 2 : 0;
  const std::int64_t accesses = r.norm != nullptr ? kResidualNormAccesses + shrunk : kAddAccesses;
  RowWork work{.rows = r.h.stride, .port_cycles = accesses * r.h.slabs, .word = word, .emit = {}};
  if (c.counts) return work;
  work.emit = [&c, r](Gp offset, std::int64_t count) {
    const std::int64_t group = in_pairs(count, r.h.slabs) ? 2 : 1;
    ResidualEmitter(c, r, group).run(std::move(offset), count);
  };
  return work;
}

RowWork rope_work(StepContext& c, const ValuePlace& x, std::int64_t distance, const Buffer& tables,
                  std::uint32_t word) {
  const auto rows = static_cast<std::int64_t>(c.rows.size());
  RowWork work{.rows = rows, .port_cycles = kRopeAccesses * x.slabs, .word = word, .emit = {}};
  work.emit = [&c, x, distance, tables, rows](Gp offset, std::int64_t count) {
    Emitter& e = c.e;
    const Gp px = pointer(c, offset, x.row), cos = pointer(c, offset, tables.row),
             sin = pointer(c, offset, tables.row + rows);
    drop(std::move(offset));
    const Gp t = e.reg(c.address(c.row_scratch.row + 1)), up = e.reg(static_cast<std::uint32_t>(distance));
    const AddressStride next = e.step(x.stride * c.vlen());
    e.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(c.machine.hlen));
    e.loop(count, [&] {
      e.loop(x.slabs, [&] {
        e.shift(t, px, up, 2);
        e.vector_vv(Op::V_MUL_VV, t, t, sin);
        e.vector_vv(Op::V_MUL_VV, px, px, cos);
        e.vector_vv(Op::V_ADD_VV, px, px, t);
        e.advance(px, next);
      });
      e.add(px, px, (1 - x.slabs * x.stride) * c.vlen());
      for (const Gp* p : {&cos, &sin}) e.add(*p, *p, c.vlen());
    });
  };
  return work;
}

RowWork swiglu_work(StepContext& c, std::int64_t gate_row, std::int64_t up_row, std::int64_t rows, std::uint32_t word) {
  RowWork work{.rows = rows, .port_cycles = kSwigluAccesses, .word = word, .emit = {}};
  if (c.counts) return work;
  work.emit = [&c, gate_row, up_row](Gp offset, std::int64_t count) {
    Emitter& e = c.e;
    const Gp p = pointer(c, offset, gate_row), q = pointer(c, offset, up_row);
    drop(std::move(offset));
    const Gp t = e.reg(c.address(c.row_scratch.row));
    swiglu_constants(c);
    e.loop(count, [&] {
      swiglu_row(e, t, p, q, p);
      for (const Gp* pointer : {&p, &q}) e.add(*pointer, *pointer, c.vlen());
    });
  };
  return work;
}

}  // namespace dllm::npu
