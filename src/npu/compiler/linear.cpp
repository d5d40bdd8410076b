// Matrix products: weights stream through two buffers of matrix SRAM, panel by panel, while activations stay in vector
// SRAM. Weights lie transposed in their tiles (a row holds one output's weights), so M_TMM multiplies and the MX blocks
// of both operands run along the contraction.

#include <algorithm>
#include <array>

#include "base/try.h"
#include "npu/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kWeightAddress = 2;  // HBM address register

/// Emits the transfer of one panel whose element offset and target are in registers.
void prefetch_panel(StepContext& c, const WeightPlace& w, const Gp& slot, const Gp& offset, std::int64_t lanes) {
  c.e.set_address(kWeightAddress, w.tensor.base);
  c.e.set_scale(w.tensor.scale_offset);
  c.e.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(lanes * w.matrix.k_tiles));
  c.e.transfer(Op::H_PREFETCH_M, slot, offset, kWeightAddress, false, 0);
}

class Product {
 public:
  Product(StepContext& context, std::uint32_t x, std::int64_t x_stride, std::int64_t blocks, const MatrixSink& sink)
      : c_(context),
        e_(context.e),
        m_(context.machine),
        w_(*context.matrices[context.next_matrix].place),
        x_(x),
        x_stride_(x_stride),
        blocks_(blocks),
        sink_(sink) {}

  void run() {
    const MatrixShape& s = w_.matrix;
    const std::int64_t panels = s.panels(), last_lanes = s.panel_lanes(panels - 1);
    slot_ = e_.reg(static_cast<std::uint32_t>(c_.layout.mram.weight[c_.panels_done % 2]));
    y_ = e_.reg(sink_.first);
    panel_elements_ = s.panel * s.k_tiles * m_.mlen;
    store(kOffset, e_.reg(static_cast<std::uint32_t>(panels > 1 ? panel_elements_ : 0)));
    store(kSlab, y_);
    // Panels whose successor is a full panel too, in loops; then the last but one; then the last, in whose shadow the
    // next matrix's first panel is loaded.
    const std::int64_t uniform = last_lanes == s.panel ? panels - 1 : std::max<std::int64_t>(0, panels - 2);
    full_panels(uniform);
    if (uniform < panels - 1) {
      load_next(last_lanes);
      compute(s.panel);
      swap();
      done_ += 1;
      if (done_ % per_slab() == 0) finish_slab();
    }
    prefetch_first_panel(c_, c_.next_matrix + 1, (c_.panels_done + panels) % 2);
    compute(last_lanes);
    finish_slab();
    c_.panels_done += panels;
    ++c_.next_matrix;
  }

 private:
  enum Word : std::uint32_t { kOffset, kSlab };
  void store(Word word, const Gp& source) { e_.store_int(source, Gp(), scratch_word(m_, word)); }
  void fetch(Word word, const Gp& target) { e_.load_int(target, Gp(), scratch_word(m_, word)); }
  std::int64_t per_slab() const { return c_.vlen() / w_.matrix.panel; }

  void full_panels(std::int64_t count) {
    const std::int64_t slabs = count / per_slab();
    const auto one = [this] {
      load_next(w_.matrix.panel);
      compute(w_.matrix.panel);
      swap();
    };
    e_.loop(slabs, [&] {
      e_.loop(per_slab(), one);
      finish_slab();
    });
    e_.loop(count % per_slab(), one);
    done_ = count;
  }

  /// Starts the transfer of the next panel into the other buffer.
  void load_next(std::int64_t lanes) {
    const Gp offset = e_.reg();
    fetch(kOffset, offset);
    const Gp other = other_slot();
    prefetch_panel(c_, w_, other, offset, lanes);
    e_.add(offset, offset, panel_elements_);
    store(kOffset, offset);
  }
  Gp other_slot() {
    Gp other = e_.reg(static_cast<std::uint32_t>(c_.layout.mram.weight[0] + c_.layout.mram.weight[1]));
    e_.subtract(other, other, slot_);
    return other;
  }
  void swap() {
    const Gp other = other_slot();
    e_.copy(slot_, other);
  }
  void finish_slab() {
    fetch(kSlab, y_);
    sink_.finish_slab(y_);
    store(kSlab, y_);
  }

  /// All rows times one panel; moves y_ behind the panel's lanes.
  void compute(std::int64_t lanes) {
    const Gp x = e_.reg(x_);
    const std::int64_t row_step = std::int64_t{m_.blen} * m_.vlen;
    e_.loop(blocks_, [&] {
      columns(lanes, x);
      e_.add(x, x, row_step);
      e_.add(y_, y_, row_step);
    });
    e_.add(y_, y_, lanes - blocks_ * row_step);
  }

  void columns(std::int64_t lanes, const Gp& x) {
    const Gp w = e_.reg(), y = e_.reg();
    e_.copy(w, slot_);
    e_.copy(y, y_);
    const Step next_tile = e_.step(lanes * m_.mlen), next_block = e_.step(std::int64_t{m_.blen} * m_.mlen);
    const Step next_slab = e_.step(x_stride_ * m_.vlen - (m_.vlen - m_.mlen));
    e_.loop(lanes / m_.blen, [&] {
      contract(x, w, next_tile, next_slab);
      e_.write_out(Op::M_MM_WO, y);
      e_.advance(w, next_block);
      e_.add(y, y, m_.blen);
    });
  }

  /// One BLEN x BLEN block: the sum over the K tiles.
  void contract(const Gp& x, const Gp& w, const Step& next_tile, const Step& next_slab) {
    const std::int64_t tiles = w_.matrix.k_tiles, ratio = m_.vlen / m_.mlen;
    const auto x_step = [&](std::int64_t tile, const Gp& to, const Gp& from) {
      if ((tile + 1) % ratio == 0)
        e_.advance_from(to, from, next_slab);
      else
        e_.add(to, from, m_.mlen);
    };
    e_.multiply_tile(Op::M_TMM, x, w);
    if (tiles == 1) return;
    const Gp xt = e_.reg(), wt = e_.reg();
    // Unrolled as far as the loop's own instructions would cost issue slots on small arrays.
    const std::int64_t unroll = std::max<std::int64_t>(8, ratio);
    constexpr std::int64_t kLongest = 16;
    if (tiles <= kLongest) {
      for (std::int64_t t = 1; t < tiles; ++t) {
        x_step(t - 1, xt, t == 1 ? x : xt);
        e_.advance_from(wt, t == 1 ? w : wt, next_tile);
        e_.multiply_tile(Op::M_TMM, xt, wt);
      }
      return;
    }
    // Tiles 1 .. in groups of `unroll`; the pattern of steps repeats as unroll is a multiple of ratio.
    e_.copy(xt, x);
    e_.copy(wt, w);
    const auto one = [&](std::int64_t t) {
      x_step(t - 1, xt, xt);
      e_.advance(wt, next_tile);
      e_.multiply_tile(Op::M_TMM, xt, wt);
    };
    e_.loop((tiles - 1) / unroll, [&] {
      for (std::int64_t t = 1; t <= unroll; ++t) one(t);
    });
    for (std::int64_t t = (tiles - 1) / unroll * unroll + 1; t < tiles; ++t) one(t);
  }

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const WeightPlace& w_;
  std::uint32_t x_;
  std::int64_t x_stride_, blocks_, panel_elements_ = 0, done_ = 0;
  const MatrixSink& sink_;
  Gp slot_, y_;
};

}  // namespace

void prefetch_first_panel(StepContext& c, std::size_t use, std::int64_t parity) {
  if (use >= c.matrices.size()) return;
  const WeightPlace& w = *c.matrices[use].place;
  const Gp slot = c.e.reg(static_cast<std::uint32_t>(c.layout.mram.weight[parity]));
  prefetch_panel(c, w, slot, Gp(), w.matrix.panel_lanes(0));
}

void lower_matrix(StepContext& c, std::uint32_t x, std::int64_t x_stride, std::int64_t blocks, const MatrixSink& sink) {
  Product(c, x, x_stride, blocks, sink).run();
}

Expected<void> lower(StepContext& c, const op::Linear& o) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace y, c.place_output(o.out));
  const WeightPlace& w = *c.matrices[c.next_matrix].place;
  // Lanes behind the last block of outputs must be zero: they are operands of what reads the value.
  if (w.matrix.n < y.slabs * c.vlen()) {
    const Gp row = c.e.reg(c.address(y, y.slabs - 1, 0)), all = c.e.reg(static_cast<std::uint32_t>(c.vlen()));
    c.e.loop(y.stride, [&] {
      c.e.shift(row, row, all, 0);
      c.e.add(row, row, c.vlen());
    });
  }
  const MatrixSink sink{c.address(y.row), [&](const Gp& slab) { c.e.add(slab, slab, y.stride * c.vlen()); }};
  lower_matrix(c, c.address(x.row), x.stride, x.stride / c.machine.blen, sink);
  if (o.bias == kNoId || c.layout.find(o.bias, WeightUse::kRow) == nullptr) return {};
  DLLM_TRY(const Buffer bias, c.resident(o.bias, WeightUse::kRow));
  c.for_rows(c.value_rows(o.out), std::array{y}, std::array{bias},
             [&](std::span<const Gp> p) { c.e.vector_vv(Op::V_ADD_VV, p[0], p[0], p[1]); });
  return {};
}

}  // namespace dllm::npu
