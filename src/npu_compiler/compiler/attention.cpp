// Bidirectional FlashAttention. The lanes hold several heads next to each other: M_BTMM computes the scores of MLEN /
// HLEN heads at once, BLEN rows by HLEN keys at a time; M_BMM_WO packs them into the lanes of one VRAM row per query
// (head after head, HLEN keys each); softmax works on all of a row's heads with segmented reductions; M_BMM multiplies
// by V.
//
// A chunk has as many tiles of HLEN keys as their scores fit. Within it softmax needs no rescaling and P V stays in the
// accumulators; from chunk to chunk maxima, sums and outputs are rescaled.
//
// The array and the vector unit work on neighbouring blocks: the scores of a block are multiplied during the softmax of
// the block before it, and outputs are collected a block later.

#include <algorithm>
#include <bit>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_compiler/compiler/attention_plan.h"
#include "npu_compiler/compiler/context.h"
#include "npu_compiler/compiler/kv_stream.h"
#include "npu_compiler/compiler/smoothing.h"
#include "npu_compiler/compiler/softmax.h"

namespace dllm::npu {
namespace {

/// K and V of a chunk of a sequence, for one set of lane groups: the contents of one buffer of matrix SRAM.
struct Job {
  std::size_t sequence = 0;
  std::int64_t first_slab = 0, slabs = 0;  ///< of the queries
  std::int64_t first_row = 0, rows = 0;    ///< of the sequence; all, or one block if there are several chunks
  std::size_t first_tile = 0, tiles = 0;   ///< into SequenceTiles::tiles
  bool first_chunk = true, last_chunk = true;
  std::vector<std::int64_t> kv_groups;  ///< distinct groups of MLEN lanes of K
};

class AttentionLowering {
 public:
  AttentionLowering(StepContext& context, const op::Attention& o)
      : c_(context),
        e_(context.e),
        m_(context.machine),
        o_(o),
        q_(context.place(o.q)),
        tiles_(context.sequence_tiles({context.machine.hlen, o.window})),
        block_(score_rows(sram_shape(context.machine))) {}

  Expected<void> run() {
    DLLM_TRY(out_, c_.place_output(o_.out));
    DLLM_CHECK_OK(buffers());
    DLLM_TRY(masks_, key_masks(c_, {m_.hlen, o_.window}));
    DLLM_CHECK_OK(used_lanes());
    if (shares()) DLLM_CHECK_OK(load_ones(c_));
    if (c_.counts) return release();
    plan();
    scale_queries(c_, o_);
    if (c_.stores_pending) e_.fence(kKeyStoreTag);
    e_.set_csr(Csr::kSegmentLength, hlen());
    e_.set_csr(Csr::kBmmCols, hlen());
    e_.set_csr(Csr::kBmmHeadStride, hlen());
    e_.set_csr(Csr::kBmmLayout, 1);
    list_blocks();
    load(0, false);
    load(1, false);
    DLLM_CHECK_OK(store_values(c_));
    multiply_keys(0);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Block& block = blocks_[i];
      // K of a job is no longer needed after its last block's scores; V after its last block.
      if (block.last_of_job) load(block.job + 2, false);
      if (block.first_of_job && i > 0) load(block.job + 1, true);
      if (i + 1 < blocks_.size()) multiply_keys(i + 1);
      // A later chunk rescales the results so far.
      const bool waits = !jobs_[block.job].first_chunk;
      if (i > 0 && waits) collect(i - 1);
      softmax(i);
      if (i == 0) {  // the first scores did not wait for V
        if (c_.stores_pending) e_.fence(kValueStoreTag);
        c_.stores_pending = false;
        load(0, true);
        load(1, true);
      }
      if (i > 0 && !waits) collect(i - 1);
      multiply_values(i);
    }
    collect(blocks_.size() - 1);
    return release();
  }

 private:
  Expected<void> release() {
    for (const Buffer& b : {scores_, values_, sums_, shares_, maxima_, scratch_}) c_.release(b);
    return {};
  }
  /// Whether V is smoothed: its centre is added to averages whose weights, the quantized probabilities, sum to 1. The
  /// array adds them up, as products with ones, in all lanes of a head.
  bool shares() const { return m_.smoothing.values != SmoothingCentre::kNone; }
  std::uint32_t hlen() const { return static_cast<std::uint32_t>(m_.hlen); }
  std::int64_t lane_groups() const { return m_.vlen / m_.mlen; }
  const LaneGroup& lanes(std::int64_t slab, std::int64_t group) const {
    return lanes_[to_size(slab * lane_groups() + group)];
  }

  std::vector<std::int64_t> kv_groups(std::int64_t slab) const {
    std::vector<std::int64_t> groups;
    for (std::int64_t u = 0; u < lane_groups(); ++u)
      if (std::ranges::find(groups, lanes(slab, u).kv_group) == groups.end()) groups.push_back(lanes(slab, u).kv_group);
    return groups;
  }

  void plan() {
    lanes_ = plan_lanes(c_.map(o_.q), kv_place(c_.spec.sequences.front()).map, m_);
    const auto chunk = to_size(c_.layout.chunk_tiles);
    for (std::size_t s = 0; s < c_.spec.sequences.size(); ++s) {
      const auto n = static_cast<std::int64_t>(c_.spec.sequences[s].positions.size());
      const std::size_t count = tiles_[s].tiles.size();
      for (std::int64_t slab = 0; slab < q_.slabs;) {
        Job job{.sequence = s, .first_slab = slab, .slabs = 1, .kv_groups = kv_groups(slab)};
        // Slabs that need the same keys share a job.
        while (slab + job.slabs < q_.slabs && kv_groups(slab + job.slabs) == job.kv_groups) ++job.slabs;
        slab += job.slabs;
        if (count <= chunk) {
          job.rows = n;
          job.tiles = count;
          jobs_.push_back(job);
          continue;
        }
        for (std::int64_t q = 0; q < job.slabs; ++q)
          for (std::int64_t row = 0; row < n; row += block_)
            for (std::size_t tile = 0; tile < count; tile += chunk) {
              Job part = job;
              part.first_slab += q;
              part.slabs = 1;
              part.first_row = row;
              part.rows = std::min(block_, n - row);
              part.first_tile = tile;
              part.tiles = std::min(chunk, count - tile);
              part.first_chunk = tile == 0;
              part.last_chunk = tile + part.tiles == count;
              jobs_.push_back(part);
            }
      }
    }
  }

  /// Up to block_ rows of a job in one slab of queries: the unit of the pipeline.
  struct Block {
    std::size_t job = 0, group = 0;  ///< group: blocks of one slab and rows, chunk after chunk
    std::int64_t slab = 0;
    std::int64_t row = 0, count = 0;  ///< of the sequence
    std::int64_t base = 0;            ///< the sequence's first row in the step
    bool first_of_job = false, last_of_job = false;
  };
  void list_blocks() {
    std::vector<std::int64_t> base(1, 0);
    for (const SequenceSpec& s : c_.spec.sequences)
      base.push_back(base.back() + static_cast<std::int64_t>(s.positions.size()));
    std::size_t group = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      const Job& job = jobs_[j];
      const std::size_t first = blocks_.size();
      for (std::int64_t slab = job.first_slab; slab < job.first_slab + job.slabs; ++slab)
        for (std::int64_t row = job.first_row; row < job.first_row + job.rows; row += block_) {
          if (job.first_chunk) ++group;
          blocks_.push_back({j, group, slab, row, std::min(block_, job.first_row + job.rows - row), base[job.sequence],
                             false, false});
        }
      blocks_[first].first_of_job = blocks_.back().last_of_job = true;
    }
  }

  Expected<void> buffers() {
    std::int64_t rows = 0, tiles = 1;
    for (std::size_t s = 0; s < tiles_.size(); ++s) {
      const auto n = static_cast<std::int64_t>(c_.spec.sequences[s].positions.size()),
                 count = static_cast<std::int64_t>(tiles_[s].tiles.size());
      rows = std::max(rows, std::min(block_, round_up(n, m_.blen)));
      tiles = std::max(tiles, std::min(count, c_.layout.chunk_tiles));
      running_ = running_ || count > c_.layout.chunk_tiles;
    }
    rows_ = rows;
    tiles_most_ = tiles;
    DLLM_TRY(scores_, c_.acquire(2 * rows * tiles, "scores"));
    DLLM_TRY(values_, c_.acquire(2 * rows, "weighted values"));
    DLLM_TRY(sums_, c_.acquire(2 * rows, "sums"));
    DLLM_TRY(shares_, c_.acquire(shares() ? 2 * rows : 1, "sums of quantized probabilities"));
    DLLM_TRY(maxima_, c_.acquire(running_ ? rows : 1, "maxima"));
    DLLM_TRY(scratch_, c_.acquire(kSoftmaxScratch, "rows of intermediate results"));
    return {};
  }

  /// Slots without a head contain averaged V, but lanes without a column must be zero.
  Expected<void> used_lanes() {
    const LaneMap& map = c_.map(o_.q);
    // A lane has at most one column.
    if (map.width == q_.slabs * m_.vlen) {
      slots_.resize(to_size(q_.slabs));
      return {};
    }
    // A head's columns are in the first lanes of its slot, in any order.
    std::vector<Bf16> row(to_size(q_.slabs * m_.vlen));
    for (std::int64_t head = 0; head < map.width / map.head_dim; ++head)
      std::fill_n(row.begin() + map.first_lane(head), map.head_dim, c_.one());
    for (std::int64_t slab = 0; slab < q_.slabs; ++slab) {
      const std::vector<Bf16> used(row.begin() + slab * m_.vlen, row.begin() + (slab + 1) * m_.vlen);
      const bool all = std::ranges::all_of(used, [](Bf16 v) { return v != 0; });
      std::optional<Buffer> mask;
      if (!all) {
        DLLM_TRY(mask, c_.constant_row(used));
      }
      slots_.push_back(mask);
    }
    return {};
  }

  /// The layer has been stored: it has a place.
  KvPlace kv_place(const SequenceSpec& s) { return *c_.kv_place(s.capacity, o_.layer); }

  /// Address in matrix SRAM of a tile of K or V.
  std::uint32_t tile_address(std::size_t job, std::int64_t kv_group, std::size_t tile, bool value) const {
    const auto& groups = jobs_[job].kv_groups;
    const auto index = std::ranges::find(groups, kv_group) - groups.begin();
    const std::int64_t row =
        ((index * 2 + (value ? 1 : 0)) * c_.layout.chunk_tiles + static_cast<std::int64_t>(tile)) * m_.hlen;
    return static_cast<std::uint32_t>(c_.layout.mram.kv[job % 2] + static_cast<std::uint64_t>(row * m_.mlen));
  }

  /// Transfers of a job's K or V; runs of adjacent tiles are one transfer.
  void load(std::size_t j, bool value) {
    if (j >= jobs_.size()) return;
    const Job& job = jobs_[j];
    const SequenceSpec& s = c_.spec.sequences[job.sequence];
    KvStream stream(c_, s, kv_place(s), value);
    const auto tiles = std::span<const std::int64_t>(tiles_[job.sequence].tiles).subspan(job.first_tile, job.tiles);
    for (const std::int64_t group : job.kv_groups)
      for_tile_runs(tiles, [&](std::size_t first, std::size_t count) {
        stream.read(tile_address(j, group, first, value), group * m_.mlen, tiles[first] * m_.hlen,
                    static_cast<std::int64_t>(count) * m_.hlen);
      });
  }

  // Buffers of neighbouring blocks alternate; sums belong to a group of chunks.
  std::int64_t score_row(std::size_t i, std::size_t tile) const {
    return scores_.row + (static_cast<std::int64_t>(i % 2) * tiles_most_ + static_cast<std::int64_t>(tile)) * rows_;
  }
  std::int64_t value_row(std::size_t i) const { return values_.row + static_cast<std::int64_t>(i % 2) * rows_; }
  std::int64_t share_row(std::size_t i) const { return shares_.row + static_cast<std::int64_t>(i % 2) * rows_; }
  std::int64_t sum_row(const Block& b) const { return sums_.row + static_cast<std::int64_t>(b.group % 2) * rows_; }

  void multiply_keys(std::size_t i) {
    const Block& b = blocks_[i];
    set_rows(b);
    e_.set_csr(Csr::kBmmScale, std::bit_cast<std::uint32_t>(o_.scale));
    for (std::int64_t u = 0; u < lane_groups(); ++u) {
      const LaneGroup& lane = lanes(b.slab, u);
      e_.set_csr(Csr::kBmmGroup, static_cast<std::uint32_t>(lane.sharing));
      const auto offset = static_cast<std::uint32_t>(u * m_.mlen);
      const Gp q = e_.reg(c_.address(q_, b.slab, b.base + b.row) + offset);
      for (std::size_t t = 0; t < jobs_[b.job].tiles; ++t) {
        const Gp k = e_.reg(tile_address(b.job, lane.kv_group, t, false) + static_cast<std::uint32_t>(lane.kv_lane)),
                 s = e_.reg(c_.address(score_row(i, t)) + offset);
        e_.multiply_tile(Op::M_BTMM, k, q);
        e_.write_out(Op::M_BMM_WO, s);
      }
    }
  }

  void multiply_values(std::size_t i) {
    const Block& b = blocks_[i];
    set_rows(b);
    e_.set_csr(Csr::kBmmScale, std::bit_cast<std::uint32_t>(1.0f));
    for (std::int64_t u = 0; u < lane_groups(); ++u) {
      const LaneGroup& lane = lanes(b.slab, u);
      e_.set_csr(Csr::kBmmGroup, static_cast<std::uint32_t>(lane.sharing));
      const auto offset = static_cast<std::uint32_t>(u * m_.mlen);
      for (std::size_t t = 0; t < jobs_[b.job].tiles; ++t) {
        const Gp v = e_.reg(tile_address(b.job, lane.kv_group, t, true) + static_cast<std::uint32_t>(lane.kv_lane)),
                 p = e_.reg(c_.address(score_row(i, t)) + offset);
        e_.multiply_tile(Op::M_BMM, v, p);
      }
      e_.write_out(Op::M_BMM_WO, e_.reg(c_.address(value_row(i)) + offset));
      if (!shares()) continue;
      const Gp ones = e_.reg(static_cast<std::uint32_t>(c_.layout.mram.ones));
      for (std::size_t t = 0; t < jobs_[b.job].tiles; ++t)
        e_.multiply_tile(Op::M_BMM, ones, e_.reg(c_.address(score_row(i, t)) + offset));
      e_.write_out(Op::M_BMM_WO, e_.reg(c_.address(share_row(i)) + offset));
    }
  }
  void set_rows(const Block& b) { e_.set_csr(Csr::kBmmRows, static_cast<std::uint32_t>(round_up(b.count, m_.blen))); }

  /// Replaces the scores by probabilities, run by run of rows that see the same keys.
  void softmax(std::size_t i) {
    const Block& b = blocks_[i];
    const Job& job = jobs_[b.job];
    for (const RowRun& run : tiles_[job.sequence].runs) {
      const std::int64_t first = std::max(run.first, b.row), end = std::min(run.first + run.count, b.row + b.count);
      if (first >= end) continue;
      SoftmaxRows rows{.scores = score_row(i, 0) + first - b.row,
                       .stride = rows_,
                       .tiles = static_cast<std::int64_t>(job.tiles),
                       .sums = sum_row(b) + first - b.row,
                       .adds = !shares(),
                       .scratch = scratch_.row,
                       .count = end - first,
                       .masks = {},
                       .running = running_ && !(job.first_chunk && job.last_chunk),
                       .first_chunk = job.first_chunk,
                       .maxima = maxima_.row + first - b.row,
                       .out = 0};
      if (!job.first_chunk) rows.out = out_.row + b.slab * out_.stride + b.base + first;
      for (std::size_t t = 0; t < job.tiles; ++t) {
        const std::int32_t pattern = run.patterns[job.first_tile + t];
        rows.masks.push_back(pattern == kAllVisible ? KeyMask{} : (*masks_)[job.sequence][to_size(pattern)]);
      }
      emit_softmax(c_, rows);
    }
  }

  /// Rows of a block, as `collect` moves over them.
  struct Collected {
    Gp value, sum, share, out;
  };

  /// Adds the chunk's P V to the output rows; after the last chunk, divides by the sums.
  void collect(std::size_t i) {
    // Fewer rows at once where a row needs more registers.
    const std::int64_t together = shares() ? 2 : 4;
    const std::int64_t count = blocks_[i].count, whole = count / together * together;
    collect(i, 0, whole, together);
    collect(i, whole, count - whole, 1);
  }

  void collect(std::size_t i, std::int64_t first, std::int64_t count, std::int64_t group) {
    if (count == 0) return;
    const Block& b = blocks_[i];
    const Job& job = jobs_[b.job];
    const bool only = job.first_chunk && job.last_chunk;
    const std::optional<Buffer>& slots = slots_[to_size(b.slab)];
    const Gp used = slots ? e_.reg(c_.address(slots->row)) : Gp();
    std::vector<Collected> rows;
    for (std::int64_t g = 0; g < group; ++g)
      rows.push_back({e_.reg(c_.address(value_row(i) + first + g)), e_.reg(c_.address(sum_row(b) + first + g)),
                      shares() ? e_.reg(c_.address(share_row(i) + first + g)) : Gp(),
                      e_.reg(c_.address(out_, b.slab, b.base + b.row + first + g))});
    const auto each = [&](auto emit) {
      for (const Collected& row : rows) emit(row);
    };
    const auto factor = [&](const Buffer& of) { return e_.reg(c_.address(of.row + b.slab)); };
    const KvFactors* factors = shares() ? &c_.kv_factors[job.sequence] : nullptr;
    const Gp scale = factors != nullptr ? factor(factors->output_factor) : Gp(),
             centre = factors != nullptr ? factor(factors->output_centre) : Gp();
    e_.loop(count / group, [&] {
      if (shares() && job.first_chunk) each([&](const Collected& r) { e_.shift(r.sum, r.share, Gp(), 1); });
      if (shares() && !job.first_chunk)
        each([&](const Collected& r) { e_.vector_vv(Op::V_ADD_VV, r.sum, r.sum, r.share); });
      if (!only && job.first_chunk) each([&](const Collected& r) { e_.shift(r.out, r.value, Gp(), 1); });
      if (!job.first_chunk) each([&](const Collected& r) { e_.vector_vv(Op::V_ADD_VV, r.out, r.out, r.value); });
      if (job.last_chunk) {
        each([&](const Collected& r) { e_.vector_v(Op::V_RECI_V, r.sum, r.sum); });
        if (slots) each([&](const Collected& r) { e_.vector_vv(Op::V_MUL_VV, r.sum, r.sum, used); });
        each([&](const Collected& r) { e_.vector_vv(Op::V_MUL_VV, r.out, only ? r.value : r.out, r.sum); });
        if (shares()) each([&](const Collected& r) { e_.vector_vv(Op::V_MUL_VV, r.out, r.out, scale); });
        if (shares()) each([&](const Collected& r) { e_.vector_vv(Op::V_ADD_VV, r.out, r.out, centre); });
      }
      each([&](const Collected& r) {
        for (const Gp* pointer : {&r.value, &r.sum, &r.out}) e_.add(*pointer, *pointer, group * c_.vlen());
        if (shares()) e_.add(r.share, r.share, group * c_.vlen());
      });
    });
  }

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const op::Attention& o_;
  ValuePlace q_, out_;
  std::vector<LaneGroup> lanes_;
  const std::vector<SequenceTiles>& tiles_;
  std::vector<Job> jobs_;
  std::vector<Block> blocks_;
  const std::vector<std::vector<KeyMask>>* masks_ = nullptr;  ///< by sequence and pattern
  std::vector<std::optional<Buffer>> slots_;
  std::int64_t block_, rows_ = 0, tiles_most_ = 1;
  bool running_ = false;
  Buffer scores_, values_, sums_, shares_, maxima_, scratch_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Attention& o) {
  if (c.map(o.q).hlen > c.machine.hlen) return lower_wide(c, o);
  return AttentionLowering(c, o).run();
}

}  // namespace dllm::npu
