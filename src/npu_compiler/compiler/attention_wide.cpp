// Attention with heads longer than the lanes that the array processes at once (head_dim a multiple of VLEN, HLEN =
// MLEN).
//
// A head is cut into pieces of MLEN lanes. M_BTMM adds the pieces' products in the accumulator before the write-out
// scales and rounds them once, so the cut loses no precision; M_BMM computes the outputs piece by piece. A row of
// scores holds VLEN keys of one head, so the softmax's segment is the whole row, and every lane of the head's slabs
// holds its sum.
//
// All keys must fit one chunk: with so small an HLEN, matrix SRAM holds thousands of keys of a single head.

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/attention_plan.h"
#include "npu_compiler/compiler/context.h"
#include "npu_compiler/compiler/kv_stream.h"
#include "npu_compiler/compiler/softmax.h"

namespace dllm::npu {
namespace {

class WideAttention {
 public:
  WideAttention(StepContext& context, const op::Attention& o)
      : c_(context),
        e_(context.e),
        m_(context.machine),
        o_(o),
        q_(context.place(o.q)),
        pieces_(o.head_dim / context.machine.mlen),
        head_slabs_(o.head_dim / context.machine.vlen),
        key_groups_(context.machine.vlen / context.machine.mlen),
        tiles_(context.sequence_tiles({context.machine.vlen, o.window})) {}

  Expected<void> run() {
    DLLM_TRY(out_, c_.place_output(o_.out));
    DLLM_CHECK_OK(plan());
    DLLM_CHECK_OK(buffers());
    DLLM_TRY(masks_, key_masks(c_, {m_.vlen, o_.window}));
    if (c_.counts) return release();
    if (c_.stores_pending) e_.fence(kKeyStoreTag);
    e_.set_csr(Csr::kSegmentLength, static_cast<std::uint32_t>(m_.vlen));
    e_.set_csr(Csr::kBmmCols, static_cast<std::uint32_t>(m_.mlen));
    e_.set_csr(Csr::kBmmHeadStride, static_cast<std::uint32_t>(m_.hlen));
    e_.set_csr(Csr::kBmmLayout, 1);
    e_.set_csr(Csr::kBmmGroup, 1);
    DLLM_CHECK_OK(load(0, false));
    DLLM_CHECK_OK(load(1, false));
    DLLM_CHECK_OK(store_values(c_));
    multiply_keys(0);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      if (block.last_of_job) DLLM_CHECK_OK(load(block.job + 2, false));
      if (block.first_of_job && i > 0) DLLM_CHECK_OK(load(block.job + 1, true));
      if (i + 1 < blocks_.size()) multiply_keys(i + 1);
      softmax(i);
      if (i == 0) {
        if (c_.stores_pending) e_.fence(kValueStoreTag);
        c_.stores_pending = false;
        DLLM_CHECK_OK(load(0, true));
        DLLM_CHECK_OK(load(1, true));
      }
      if (i > 0) collect(i - 1);
      multiply_values(i);
    }
    collect(blocks_.size() - 1);
    return release();
  }

 private:
  Expected<void> release() {
    for (const Buffer& b : {scores_, values_, sums_, scratch_}) c_.release(b);
    return {};
  }
  /// A KV head of a sequence: the contents of one buffer of matrix SRAM.
  struct Job {
    std::size_t sequence = 0;
    std::int64_t kv_head = 0;
  };
  /// Rows of one query head.
  struct Block {
    std::size_t job = 0;
    std::int64_t head = 0, row = 0, count = 0, base = 0;
    bool first_of_job = false, last_of_job = false;
  };

  Expected<void> plan() {
    const std::int64_t most = score_rows(sram_shape(m_)), share = o_.heads / o_.kv_heads;
    std::int64_t base = 0;
    for (std::size_t s = 0; s < c_.spec.sequences.size(); ++s) {
      tiles_most_ = std::max(tiles_most_, static_cast<std::int64_t>(tiles_[s].tiles.size()));
      const auto n = static_cast<std::int64_t>(c_.spec.sequences[s].positions.size());
      rows_ = std::max(rows_, round_up(std::min(most, n), m_.blen));
      for (std::int64_t kv = 0; kv < o_.kv_heads && !c_.counts; ++kv) {
        const std::size_t first = blocks_.size();
        for (std::int64_t head = kv * share; head < (kv + 1) * share; ++head)
          for (std::int64_t row = 0; row < n; row += most)
            blocks_.push_back({jobs_.size(), head, row, std::min(most, n - row), base, false, false});
        blocks_[first].first_of_job = blocks_.back().last_of_job = true;
        jobs_.push_back({s, kv});
      }
      base += n;
    }
    if (tiles_most_ > c_.layout.chunk_tiles)
      return Error{ErrorCode::kUsage,
                   fmt::format("{} keys of heads of {} lanes do not fit on chip at once: {} do", tiles_most_ * m_.vlen,
                               o_.head_dim, c_.layout.chunk_tiles * m_.vlen),
                   "npu compiler", "--set sram.matrix_tiles=N or sram.vector_rows=N with a larger N"};
    return {};
  }

  Expected<void> buffers() {
    DLLM_TRY(scores_, c_.acquire(2 * rows_ * tiles_most_, "scores"));
    DLLM_TRY(values_, c_.acquire(2 * rows_ * head_slabs_, "weighted values"));
    DLLM_TRY(sums_, c_.acquire(2 * rows_, "sums"));
    DLLM_TRY(scratch_, c_.acquire(kSoftmaxScratch, "rows of intermediate results"));
    return {};
  }

  /// Address in matrix SRAM of MLEN keys of one piece.
  std::uint32_t keys_address(std::size_t job, std::int64_t piece, std::int64_t tile, std::int64_t group,
                             bool value) const {
    const std::int64_t region = (value ? pieces_ : 0) + piece;
    const std::int64_t row = (region * c_.layout.chunk_tiles + tile) * m_.vlen + group * m_.mlen;
    return static_cast<std::uint32_t>(c_.layout.mram.kv[job % 2] + static_cast<std::uint64_t>(row * m_.mlen));
  }

  Expected<void> load(std::size_t j, bool value) {
    if (j >= jobs_.size()) return {};
    const Job& job = jobs_[j];
    const SequenceSpec& s = c_.spec.sequences[job.sequence];
    DLLM_TRY(const KvPlace place, c_.kv_place(s.capacity, o_.layer));
    KvStream stream(c_, s, place, value);
    const std::vector<std::int64_t>& tiles = tiles_[job.sequence].tiles;
    for (std::int64_t piece = 0; piece < pieces_; ++piece)
      for_tile_runs(tiles, [&](std::size_t first, std::size_t count) {
        stream.read(keys_address(j, piece, static_cast<std::int64_t>(first), 0, value),
                    job.kv_head * o_.head_dim + piece * m_.mlen, tiles[first] * m_.vlen,
                    static_cast<std::int64_t>(count) * m_.vlen);
      });
    return {};
  }

  // Buffers of neighbouring blocks alternate.
  std::int64_t score_row(std::size_t i, std::int64_t tile) const {
    return scores_.row + (static_cast<std::int64_t>(i % 2) * tiles_most_ + tile) * rows_;
  }
  std::int64_t value_row(std::size_t i, std::int64_t slab) const {
    return values_.row + (static_cast<std::int64_t>(i % 2) * head_slabs_ + slab) * rows_;
  }
  std::int64_t sum_row(std::size_t i) const { return sums_.row + static_cast<std::int64_t>(i % 2) * rows_; }
  std::int64_t tile_count(const Block& b) const {
    return static_cast<std::int64_t>(tiles_[jobs_[b.job].sequence].tiles.size());
  }

  /// Calls body(tile, group, address of its part of the block's scores).
  template <class Body>
  void each_key_group(std::size_t i, Body body) {
    for (std::int64_t t = 0; t < tile_count(blocks_[i]); ++t)
      for (std::int64_t u = 0; u < key_groups_; ++u)
        body(t, u, c_.address(score_row(i, t)) + static_cast<std::uint32_t>(u * m_.mlen));
  }

  void set_rows(const Block& b, float scale) {
    e_.set_csr(Csr::kBmmRows, static_cast<std::uint32_t>(round_up(b.count, m_.blen)));
    e_.set_csr(Csr::kBmmScale, std::bit_cast<std::uint32_t>(scale));
  }

  void multiply_keys(std::size_t i) {
    const Block& b = blocks_[i];
    set_rows(b, o_.scale);
    each_key_group(i, [&](std::int64_t t, std::int64_t u, std::uint32_t scores) {
      for (std::int64_t piece = 0; piece < pieces_; ++piece) {
        const std::int64_t lane = b.head * o_.head_dim + piece * m_.mlen;
        const Gp k = e_.reg(keys_address(b.job, piece, t, u, false)),
                 q = e_.reg(c_.address(q_, lane / m_.vlen, b.base + b.row) +
                            static_cast<std::uint32_t>(lane % m_.vlen));
        e_.multiply_tile(Op::M_BTMM, k, q);
      }
      e_.write_out(Op::M_BMM_WO, e_.reg(scores));
    });
  }

  void multiply_values(std::size_t i) {
    const Block& b = blocks_[i];
    set_rows(b, 1.0f);
    for (std::int64_t piece = 0; piece < pieces_; ++piece) {
      each_key_group(i, [&](std::int64_t t, std::int64_t u, std::uint32_t scores) {
        const Gp v = e_.reg(keys_address(b.job, piece, t, u, true)), p = e_.reg(scores);
        e_.multiply_tile(Op::M_BMM, v, p);
      });
      const std::int64_t lane = piece * m_.mlen;
      e_.write_out(Op::M_BMM_WO,
                   e_.reg(c_.address(value_row(i, lane / m_.vlen)) + static_cast<std::uint32_t>(lane % m_.vlen)));
    }
  }

  void softmax(std::size_t i) {
    const Block& b = blocks_[i];
    const SequenceTiles& plan = tiles_[jobs_[b.job].sequence];
    for (const RowRun& run : plan.runs) {
      const std::int64_t first = std::max(run.first, b.row), end = std::min(run.first + run.count, b.row + b.count);
      if (first >= end) continue;
      SoftmaxRows rows{.scores = score_row(i, 0) + first - b.row,
                       .stride = rows_,
                       .tiles = tile_count(b),
                       .sums = sum_row(i) + first - b.row,
                       .scratch = scratch_.row,
                       .count = end - first,
                       .masks = {}};
      for (std::int64_t t = 0; t < rows.tiles; ++t) {
        const std::int32_t pattern = run.patterns[to_size(t)];
        rows.masks.push_back(pattern == kAllVisible ? KeyMask{} : (*masks_)[jobs_[b.job].sequence][to_size(pattern)]);
      }
      emit_softmax(c_, rows);
    }
  }

  /// P V divided by the sums, to the head's slabs of the output.
  void collect(std::size_t i) {
    const Block& b = blocks_[i];
    const Gp l = e_.reg(c_.address(sum_row(i))), v = e_.reg(c_.address(value_row(i, 0))),
             o = e_.reg(c_.address(out_, b.head * head_slabs_, b.base + b.row));
    const AddressStride next_value = e_.step(rows_ * m_.vlen), next_out = e_.step(out_.stride * m_.vlen);
    e_.loop(b.count, [&] {
      e_.vector_v(Op::V_RECI_V, l, l);
      for (std::int64_t slab = 0; slab < head_slabs_; ++slab) {
        e_.vector_vv(Op::V_MUL_VV, o, v, l);
        e_.advance(v, next_value);
        e_.advance(o, next_out);
      }
      e_.add(v, v, (1 - head_slabs_ * rows_) * m_.vlen);
      e_.add(o, o, (1 - head_slabs_ * out_.stride) * m_.vlen);
      e_.add(l, l, m_.vlen);
    });
  }

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const op::Attention& o_;
  ValuePlace q_, out_;
  std::int64_t pieces_, head_slabs_, key_groups_;
  const std::vector<SequenceTiles>& tiles_;
  std::vector<Job> jobs_;
  std::vector<Block> blocks_;
  const std::vector<std::vector<KeyMask>>* masks_ = nullptr;  ///< by sequence and pattern
  std::int64_t rows_ = 0, tiles_most_ = 1;
  Buffer scores_, values_, sums_, scratch_;
};

}  // namespace

Expected<void> lower_wide(StepContext& c, const op::Attention& o) { return WideAttention(c, o).run(); }

Expected<void> lower_wide(StepContext& c, const op::Rope& o, const RopePlace& rope) {
  const ValuePlace x = c.place(o.x);
  DLLM_TRY(const ValuePlace out, c.place_output(o.out, std::array{o.x}));
  DLLM_TRY(const Buffer tables, c.rope_rows(rope));
  DLLM_TRY(const Buffer scratch, c.acquire(2, "rows of intermediate results"));
  if (c.counts) {
    c.release(scratch);
    return {};
  }
  const auto count = static_cast<std::int64_t>(c.rows.size());
  Emitter& e = c.e;
  const Gp low = e.reg(c.address(x.row)), high = e.reg(c.address(x.row + x.stride)), to_low = e.reg(c.address(out.row)),
           to_high = e.reg(c.address(out.row + out.stride)), cos = e.reg(), sin = e.reg(),
           t = e.reg(c.address(scratch.row)), u = e.reg(c.address(scratch.row + 1));
  // Pairs of slabs, the halves of a head.
  e.loop(x.slabs / 2, [&] {
    e.load(cos, c.address(tables.row));
    e.load(sin, c.address(tables.row + count));
    e.loop(count, [&] {
      e.vector_vv(Op::V_MUL_VV, t, high, sin);
      e.vector_vv(Op::V_MUL_VV, u, low, sin);
      e.vector_vv(Op::V_MUL_VV, to_low, low, cos);
      e.vector_vv(Op::V_SUB_VV, to_low, to_low, t);
      e.vector_vv(Op::V_MUL_VV, to_high, high, cos);
      e.vector_vv(Op::V_ADD_VV, to_high, to_high, u);
      for (const Gp* p : {&low, &high, &to_low, &to_high, &cos, &sin}) e.add(*p, *p, c.vlen());
    });
    for (const Gp* p : {&low, &high, &to_low, &to_high}) e.add(*p, *p, (2 * x.stride - count) * c.vlen());
  });
  c.release(scratch);
  return {};
}

}  // namespace dllm::npu
