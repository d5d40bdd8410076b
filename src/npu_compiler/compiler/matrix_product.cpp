// Matrix products: weights stream through two buffers of matrix SRAM, panel by panel, while activations stay in vector
// SRAM. Weights are stored transposed in their tiles (a row holds one output's weights), so M_TMM multiplies and the MX
// blocks of both operands run along the contraction.

#include <algorithm>
#include <array>
#include <utility>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/context.h"
#include "npu_compiler/lowering/slices.h"

namespace dllm::npu {
namespace {

// Words of INT_MEM, after kSlabWord: from kOffsetWord on the next panel's element offset per matrix.
constexpr std::uint32_t kOffsetWord = 1;

/// Emits the transfer of one panel; its element offset and target are in registers.
void prefetch_panel(StepContext& c, const WeightPlace& w, const Gp& slot, const Gp& offset, std::int64_t lanes) {
  c.e.set_address(kWeightAddress, w.tensor.base);
  c.e.set_scale(w.tensor.scale_offset);
  c.e.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(lanes * w.matrix.k_tiles));
  c.e.transfer(Op::H_PREFETCH_M, slot, offset, kWeightAddress, false, 0);
}

/// Work in the shadow of one block of rows: that many rows of it, spread over the column blocks.
struct Shadow {
  const RowWork* work = nullptr;
  std::int64_t rows = 0;
  bool fresh = false;  ///< its rows are those of the previous block, whose last results are still in flight
};

/// One matrix, or two of the same shape whose slabs alternate (gate and up). The order of panels is: for each slab, for
/// each matrix, the slab's panels; while one is multiplied, its successor is loaded into the other buffer.
class Product {
 public:
  Product(StepContext& context, std::uint32_t x, std::int64_t x_stride, std::int64_t blocks, const MatrixSink& sink)
      : c_(context),
        e_(context.e),
        m_(context.machine),
        count_(sink.second ? 2 : 1),
        x_(x),
        x_stride_(x_stride),
        blocks_(blocks),
        sink_(sink) {}

  void run() {
    const MatrixShape& s = shape();
    take_shadow();
    per_slab_ = c_.vlen() / s.panel;
    panel_elements_ = s.panel * s.k_tiles * m_.mlen;
    slot_ = e_.reg(static_cast<std::uint32_t>(c_.layout.mram.weight[c_.panels_done % 2]));
    y_ = e_.reg(sink_.first);
    store(kSlabWord, y_);
    store(kOffsetWord, e_.reg(static_cast<std::uint32_t>(panel_elements_)));
    if (count_ == 2) store(kOffsetWord + 1, Gp());
    const std::int64_t slabs = ceil_div(s.panels(), per_slab_), last_first = (slabs - 1) * per_slab_;
    const std::int64_t last_lanes = s.panel_lanes(last_first);
    // Slabs are alike as long as the panel after them is a full one.
    const std::int64_t alike = last_lanes == s.panel ? slabs - 1 : std::max<std::int64_t>(0, slabs - 2);
    const auto full_slab = [&](std::int64_t next_lanes) {
      slab(per_slab_, s.panel, next_lanes);
      finish_slab();
    };
    std::int64_t looped = alike;
    const bool apart = (sink_.behind_block || carry_) && slabs > 1;
    if (apart) {  // the first slab has no predecessor, and its first block does the carried rows
      full_slab(alike > 0 ? s.panel : last_lanes);
      behind_ = static_cast<bool>(sink_.behind_block);
      looped = std::max<std::int64_t>(0, alike - 1);
    }
    repeat(looped, [&] { full_slab(s.panel); });
    if (alike < slabs - 1 && (!apart || alike > 0)) full_slab(last_lanes);
    slab(s.panels() - last_first, s.panel_lanes(s.panels() - 1), 0);
    if (sink_.finish_last) {
      fetch(kSlabWord, y_);
      sink_.finish_last(y_);
    } else {
      finish_slab();
    }
    c_.panels_done += count_ * s.panels();
    c_.next_matrix += to_size(count_);
    if (sink_.tail) c_.carry = std::move(tail_);
  }

 private:
  /// The work available for this product's shadow.
  void take_shadow() {
    if (blocks_ < 2) c_.flush_carry();  // the one block needs all rows
    if (count_ > 1) c_.flush_streams();
    carry_ = std::exchange(c_.carry, std::nullopt);
    if (sink_.tail) {
      tail_ = *sink_.tail;
      store(tail_.word, Gp());
    }
    std::int64_t rows = 0;
    for (const RowWork& stream : c_.streams) rows += stream.rows;
    if (rows == 0) return;
    const std::int64_t free = shape().panels() * blocks_ - (carry_ ? 1 : 0) - (sink_.tail ? blocks_ - 1 : 0);
    // The array leaves one port of two: more rows than it has cycles would delay it.
    const std::int64_t array = shape().panel / m_.blen * shape().k_tiles * m_.blen;
    stream_rows_ = std::max<std::int64_t>(
        1, std::min(ceil_div(rows, std::max<std::int64_t>(1, free)), array / c_.streams.front().port_cycles));
  }
  /// Panels with different shadows cannot be iterations of one loop.
  void repeat(std::int64_t count, const std::function<void()>& body) {
    if (stream_rows_ == 0) return e_.loop(count, body);
    for (std::int64_t i = 0; i < count; ++i) body();
  }

  void store(std::uint32_t word, const Gp& source) { e_.store_int(source, Gp(), scratch_word(m_, word)); }
  void fetch(std::uint32_t word, const Gp& target) { e_.load_int(target, Gp(), scratch_word(m_, word)); }
  const WeightPlace& place(std::int64_t i) const { return *c_.matrices[c_.next_matrix + to_size(i)]; }
  const MatrixShape& shape() const { return place(0).matrix; }

  /// One slab of all matrices: `panels` panels, the last of `last` lanes. `next_lanes`: of the first panel after the
  /// slab, 0 after the last slab.
  void slab(std::int64_t panels, std::int64_t last, std::int64_t next_lanes) {
    const std::int64_t full = shape().panel, first = panels == 1 ? last : full;
    for (std::int64_t i = 0; i < count_; ++i) {
      if (i == 1) e_.load(y_, *sink_.second);
      const std::int64_t alike = last == full ? panels - 1 : std::max<std::int64_t>(0, panels - 2);
      bool behind = behind_ && i == 0;  // with the slab's first panel
      const auto one = [&](std::int64_t following, std::int64_t matrix, std::int64_t lanes) {
        load_next(matrix, following);
        compute(lanes, behind);
        swap();
        behind = false;
      };
      std::int64_t looped = alike;
      if ((behind || carry_) && alike > 0) one(full, i, full), --looped;
      repeat(looped, [&] { one(full, i, full); });
      if (alike < panels - 1) one(last, i, full);
      if (i + 1 < count_) {
        one(first, i + 1, last);
      } else if (next_lanes > 0) {
        one(next_lanes, 0, last);
      } else {
        prefetch_first_panel(c_, c_.next_matrix + to_size(count_), (c_.panels_done + count_ * shape().panels()) % 2);
        compute(last, behind, sink_.tail.has_value());
      }
    }
  }

  /// Starts the transfer of a matrix's next panel into the other buffer.
  void load_next(std::int64_t matrix, std::int64_t lanes) {
    const auto word = kOffsetWord + static_cast<std::uint32_t>(matrix);
    const Gp offset = e_.reg();
    fetch(word, offset);
    const Gp other = other_slot();
    prefetch_panel(c_, place(matrix), other, offset, lanes);
    e_.add(offset, offset, panel_elements_);
    store(word, offset);
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
    fetch(kSlabWord, y_);
    sink_.finish_slab(y_);
    store(kSlabWord, y_);
  }

  /// All rows times one panel; moves y_ past the panel's lanes. `last`: the tail's rows become complete.
  void compute(std::int64_t lanes, bool behind, bool last = false) {
    const Gp x = e_.reg(x_);
    const std::int64_t row_step = std::int64_t{m_.blen} * m_.vlen;
    std::int64_t done = 0;
    const auto blocks = [&](std::int64_t count, const Shadow& shadow) {
      e_.loop(count, [&] {
        columns(lanes, x, behind, shadow);
        e_.add(x, x, row_step);
        e_.add(y_, y_, row_step);
      });
      done += count;
    };
    if (carry_) {
      blocks(1, {&*carry_, carry_->rows, true});
      c_.finish(*std::exchange(carry_, std::nullopt));
    }
    if (last && blocks_ > 1) {
      if (done == 0) stream(blocks, 1);
      blocks(blocks_ - 1, {&tail_, m_.blen, true});
      tail_.rows -= (blocks_ - 1) * m_.blen;
    } else {
      stream(blocks, blocks_ - done);
    }
    e_.add(y_, y_, lanes - blocks_ * row_step);
  }

  /// `count` blocks, with the streams in their shadow.
  template <class Blocks>
  void stream(const Blocks& blocks, std::int64_t count) {
    while (count > 0) {
      if (stream_rows_ == 0 || c_.streams.empty()) return blocks(count, {});
      RowWork& work = c_.streams.front();
      const std::int64_t rows = std::min(stream_rows_, work.rows), trips = std::min(count, work.rows / rows);
      blocks(trips, {&work, rows, false});
      count -= trips;
      if ((work.rows -= trips * rows) > 0) continue;
      const RowWork done = std::move(work);
      c_.streams.erase(c_.streams.begin());
      c_.finish(done);
    }
  }

  void columns(std::int64_t lanes, const Gp& x, bool behind, const Shadow& shadow) {
    const Gp w = e_.reg(), y = e_.reg();
    e_.copy(w, slot_);
    e_.copy(y, y_);
    const std::int64_t blocks = lanes / m_.blen;
    if (shadow.work != nullptr) return columns_beside(blocks, lanes, x, w, y, shadow);
    const Steps steps = make_steps(lanes);
    const std::int64_t parts = behind ? pieces_behind(blocks, m_.blen) : 1;
    for (std::int64_t part = 0; part < parts; ++part) {
      e_.loop(blocks / parts, [&] { column(x, w, y, steps); });
      if (behind) sink_.behind_block(y_, part * (m_.blen / parts), m_.blen / parts);
    }
  }

  void columns_beside(std::int64_t blocks, std::int64_t lanes, const Gp& x, const Gp& w, const Gp& y,
                      const Shadow& shadow) {
    const Slices slices = make_slices(blocks, shape().k_tiles, shadow.rows, shadow.fresh);
    const auto some = [&](std::int64_t count) { e_.loop(count, [&] { column(x, w, y, make_steps(lanes)); }); };
    const auto slice = [&](std::int64_t rows) {
      const std::array<const Gp*, 5> mine = {&slot_, &y_, &x, &w, &y};
      for (std::uint32_t i = 0; i < mine.size(); ++i) {
        store(kSpillWord + i, *mine[i]);
        e_.lend(*mine[i]);
      }
      emit_rows(c_, *shadow.work, rows);
      for (std::uint32_t i = 0; i < mine.size(); ++i) {
        e_.reclaim(*mine[i]);
        fetch(kSpillWord + i, *mine[i]);
      }
    };
    some(slices.lead);
    e_.loop(slices.full, [&] {
      some(slices.between);
      slice(slices.each);
    });
    if (slices.left > 0) {
      some(slices.between);
      slice(slices.left);
    }
    some(blocks - slices.lead - slices.between * slices.count());
  }

  struct Steps {
    AddressStride tile, block, slab;
  };
  Steps make_steps(std::int64_t lanes) {
    return {e_.step(lanes * m_.mlen), e_.step(std::int64_t{m_.blen} * m_.mlen),
            e_.step(x_stride_ * m_.vlen - (m_.vlen - m_.mlen))};
  }

  void column(const Gp& x, const Gp& w, const Gp& y, const Steps& steps) {
    contract(x, w, steps.tile, steps.slab);
    e_.write_out(Op::M_MM_WO, y);
    e_.advance(w, steps.block);
    e_.add(y, y, m_.blen);
  }

  /// One BLEN x BLEN block: the sum over the K tiles.
  void contract(const Gp& x, const Gp& w, const AddressStride& next_tile, const AddressStride& next_slab) {
    const std::int64_t tiles = shape().k_tiles, ratio = m_.vlen / m_.mlen;
    const auto x_step = [&](std::int64_t tile, const Gp& to, const Gp& from) {
      if ((tile + 1) % ratio == 0)
        e_.advance_from(to, from, next_slab);
      else
        e_.add(to, from, m_.mlen);
    };
    e_.multiply_tile(Op::M_TMM, x, w);
    if (tiles == 1) return;
    const Gp xt = e_.reg(), wt = e_.reg();
    // Unrolled until the loop's own instructions no longer cost issue slots on small arrays.
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
  std::int64_t count_;
  std::uint32_t x_;
  std::int64_t x_stride_, blocks_, panel_elements_ = 0, per_slab_ = 1;
  const MatrixSink& sink_;
  bool behind_ = false;
  std::optional<RowWork> carry_;  ///< until it is done in the first block
  RowWork tail_;
  std::int64_t stream_rows_ = 0;  ///< of the streams per block of rows; 0: no streams
  Gp slot_, y_;
};

}  // namespace

void prefetch_first_panel(StepContext& c, std::size_t use, std::int64_t parity) {
  if (use >= c.matrices.size() || c.matrices[use] == nullptr) return;
  const WeightPlace& w = *c.matrices[use];
  const Gp slot = c.e.reg(static_cast<std::uint32_t>(c.layout.mram.weight[parity]));
  prefetch_panel(c, w, slot, Gp(), w.matrix.panel_lanes(0));
}

void lower_matrix(StepContext& c, std::uint32_t x, std::int64_t x_stride, std::int64_t blocks, const MatrixSink& sink) {
  if (!c.counts) return Product(c, x, x_stride, blocks, sink).run();
  if (c.carry) c.finish(*std::exchange(c.carry, std::nullopt));
  if (sink.tail) c.carry = sink.tail;
}

}  // namespace dllm::npu
