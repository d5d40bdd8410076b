// Bidirectional FlashAttention. Heads lie side by side in the lanes: M_BTMM makes the scores of MLEN / HLEN heads at
// once, BLEN rows by HLEN keys at a time, M_BMM_WO packs them into the lanes of one VRAM row per query (head after
// head, HLEN keys each), softmax works on all of a row's heads with segmented reductions, and M_BMM multiplies by V.
//
// A chunk is as many tiles of HLEN keys as scores fit: within it softmax needs no rescaling and P V stays in the
// accumulators; from chunk to chunk maxima, sums and outputs are rescaled.

#include <algorithm>
#include <bit>

#include "base/try.h"
#include "npu/compiler/attention_plan.h"
#include "npu/compiler/context.h"

namespace dllm::npu {
namespace {

constexpr std::uint32_t kKAddress = 5, kVAddress = 6;
constexpr Bf16 kLowest = 0xff7f;  ///< finite, so that lowest - lowest is 0

/// K and V of a chunk of a sequence, for one set of lane groups: what one buffer of matrix SRAM holds.
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
      : c_(context), e_(context.e), m_(context.machine), o_(o), q_(context.place(o.q)) {}

  Expected<void> run() {
    DLLM_TRY(out_, c_.place_output(o_.out));
    plan();
    DLLM_CHECK_OK(buffers());
    DLLM_CHECK_OK(masks());
    if (c_.stores_pending) e_.fence(kKvStoreTag);
    c_.stores_pending = false;
    e_.set_csr(Csr::kSegmentLength, hlen());
    e_.set_csr(Csr::kBmmCols, hlen());
    e_.set_csr(Csr::kBmmHeadStride, hlen());
    e_.set_csr(Csr::kBmmLayout, 1);
    load(0);
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (j + 1 < jobs_.size()) load(j + 1);
      compute(j);
    }
    for (const Buffer& b : {scores_, values_, sums_, maxima_, scratch_}) c_.release(b);
    return {};
  }

 private:
  std::uint32_t hlen() const { return static_cast<std::uint32_t>(m_.hlen); }
  std::int64_t lane_groups() const { return m_.vlen / m_.mlen; }
  const LaneGroup& lanes(std::int64_t slab, std::int64_t group) const {
    return lanes_[static_cast<std::size_t>(slab * lane_groups() + group)];
  }

  std::vector<std::int64_t> kv_groups(std::int64_t slab) const {
    std::vector<std::int64_t> groups;
    for (std::int64_t u = 0; u < lane_groups(); ++u)
      if (std::ranges::find(groups, lanes(slab, u).kv_group) == groups.end()) groups.push_back(lanes(slab, u).kv_group);
    return groups;
  }

  void plan() {
    lanes_ = plan_lanes(c_.map(o_.q), kv_place(c_.spec.sequences.front()).map, m_);
    block_ = round_up(std::min<std::int64_t>(128, m_.mlen), m_.blen);
    const auto chunk = static_cast<std::size_t>(c_.layout.chunk_tiles);
    for (std::size_t s = 0; s < c_.spec.sequences.size(); ++s) {
      tiles_.push_back(plan_tiles(c_.spec.sequences[s], m_.hlen));
      const auto n = static_cast<std::int64_t>(c_.spec.sequences[s].positions.size());
      const std::size_t count = tiles_.back().tiles.size();
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

  Expected<void> buffers() {
    std::int64_t rows = 0, tiles = 1;
    for (const Job& job : jobs_) {
      rows = std::max(rows, std::min(block_, round_up(job.rows, m_.blen)));
      tiles = std::max(tiles, static_cast<std::int64_t>(job.tiles));
    }
    rows_ = rows;
    DLLM_TRY(scores_, c_.acquire(rows * tiles, "scores"));
    DLLM_TRY(values_, c_.acquire(rows, "weighted values"));
    DLLM_TRY(sums_, c_.acquire(rows, "sums"));
    DLLM_TRY(maxima_, c_.acquire(rows, "maxima"));
    DLLM_TRY(scratch_, c_.acquire(1, "a row of intermediate results"));
    return {};
  }

  /// Rows of VLEN lanes that hide keys: [pattern] {limit, factor}.
  struct Mask {
    Buffer limit, factor;
  };
  Expected<void> masks() {
    for (const SequenceTiles& plan : tiles_) {
      std::vector<Mask> of_sequence;
      for (const std::vector<bool>& pattern : plan.patterns) {
        std::vector<Bf16> limit(static_cast<std::size_t>(m_.vlen)), factor(limit.size());
        for (std::size_t lane = 0; lane < limit.size(); ++lane) {
          const bool visible = pattern[lane % pattern.size()];
          limit[lane] = visible ? 0x7f80 : kLowest;
          factor[lane] = visible ? kBf16One : Bf16{0};
        }
        Mask mask;
        DLLM_TRY(mask.limit, c_.constant_row(limit));
        DLLM_TRY(mask.factor, c_.constant_row(factor));
        of_sequence.push_back(mask);
      }
      masks_.push_back(std::move(of_sequence));
    }
    // Slots without a head have averaged V, but lanes without a column are zero.
    const LaneMap& map = c_.map(o_.q);
    for (std::int64_t slab = 0; slab < q_.slabs; ++slab) {
      std::vector<Bf16> used(static_cast<std::size_t>(m_.vlen));
      for (std::int64_t column = 0; column < map.width; ++column)
        if (const std::int64_t lane = map.lane(column) - slab * m_.vlen; lane >= 0 && lane < m_.vlen)
          used[static_cast<std::size_t>(lane)] = kBf16One;
      const bool all = std::ranges::all_of(used, [](Bf16 v) { return v != 0; });
      std::optional<Buffer> mask;
      if (!all) {
        DLLM_TRY(mask, c_.constant_row(used));
      }
      slots_.push_back(mask);
    }
    return {};
  }

  KvPlace kv_place(const SequenceSpec& s) const {
    // Checked when K and V were stored.
    const KvLayout layout = *kv_layout(c_.graph, c_.layout, s.capacity);
    for (const KvPlace& place : layout.layers)
      if (place.layer == o_.layer) return place;
    return {};
  }

  /// Address in matrix SRAM of a tile of K or V.
  std::uint32_t tile_address(std::size_t job, std::int64_t kv_group, std::size_t tile, bool value) const {
    const auto& groups = jobs_[job].kv_groups;
    const auto index = std::ranges::find(groups, kv_group) - groups.begin();
    const std::int64_t row =
        ((index * 2 + (value ? 1 : 0)) * c_.layout.chunk_tiles + static_cast<std::int64_t>(tile)) * m_.hlen;
    return static_cast<std::uint32_t>(c_.layout.mram.kv[job % 2] + static_cast<std::uint64_t>(row * m_.mlen));
  }

  /// Transfers of a job's K and V, runs of adjacent tiles at once.
  void load(std::size_t j) {
    const Job& job = jobs_[j];
    const SequenceSpec& s = c_.spec.sequences[job.sequence];
    const KvPlace place = kv_place(s);
    const std::int64_t capacity = round_up(s.capacity, m_.hlen);
    const std::vector<std::int64_t>& tiles = tiles_[job.sequence].tiles;
    const bool strided = m_.vlen != m_.mlen;
    e_.set_address(kKAddress, s.cache + place.k_offset);
    e_.set_address(kVAddress, s.cache + place.v_offset);
    e_.set_scale(place.scale_offset);
    if (strided) e_.set_stride(static_cast<std::uint32_t>(m_.vlen));
    for (const std::int64_t group : job.kv_groups)
      for (const bool value : {false, true})
        for (std::size_t first = 0; first < job.tiles;) {
          std::size_t end = first + 1;
          while (end < job.tiles && tiles[job.first_tile + end] == tiles[job.first_tile + end - 1] + 1) ++end;
          const std::int64_t lane = group * m_.mlen, slab = lane / m_.vlen;
          const std::int64_t offset =
              (slab * capacity + tiles[job.first_tile + first] * m_.hlen) * m_.vlen + lane % m_.vlen;
          e_.set_csr(Csr::kPrefetchMRows, static_cast<std::uint32_t>(end - first) * hlen());
          const Gp to = e_.reg(tile_address(j, group, first, value)), from = e_.reg(static_cast<std::uint32_t>(offset));
          e_.transfer(Op::H_PREFETCH_M, to, from, value ? kVAddress : kKAddress, strided, 1);
          first = end;
        }
  }

  void compute(std::size_t j) {
    const Job& job = jobs_[j];
    std::int64_t base = 0;  // of the sequence's rows in the step
    for (std::size_t s = 0; s < job.sequence; ++s)
      base += static_cast<std::int64_t>(c_.spec.sequences[s].positions.size());
    for (std::int64_t slab = job.first_slab; slab < job.first_slab + job.slabs; ++slab)
      for (std::int64_t row = job.first_row; row < job.first_row + job.rows; row += block_) {
        const std::int64_t count = std::min(block_, job.first_row + job.rows - row);
        multiply_keys(j, slab, base + row, count);
        for (const RowRun& run : tiles_[job.sequence].runs) {
          const std::int64_t first = std::max(run.first, row), end = std::min(run.first + run.count, row + count);
          if (first < end) softmax(job, run, first - row, end - first, slab, base + first);
        }
        multiply_values(j, slab);
        collect(job, slab, base + row, count);
      }
  }

  std::uint32_t score_row(std::int64_t tile, std::int64_t row) const {
    return c_.address(scores_.row + tile * rows_ + row);
  }

  void multiply_keys(std::size_t j, std::int64_t slab, std::int64_t row, std::int64_t count) {
    const Job& job = jobs_[j];
    e_.set_csr(Csr::kBmmRows, static_cast<std::uint32_t>(round_up(count, m_.blen)));
    e_.set_csr(Csr::kBmmScale, std::bit_cast<std::uint32_t>(o_.scale));
    for (std::int64_t u = 0; u < lane_groups(); ++u) {
      const LaneGroup& lane = lanes(slab, u);
      e_.set_csr(Csr::kBmmGroup, static_cast<std::uint32_t>(lane.sharing));
      const auto offset = static_cast<std::uint32_t>(u * m_.mlen);
      const Gp q = e_.reg(c_.address(q_, slab, row) + offset);
      for (std::size_t t = 0; t < job.tiles; ++t) {
        const Gp k = e_.reg(tile_address(j, lane.kv_group, t, false) + static_cast<std::uint32_t>(lane.kv_lane)),
                 s = e_.reg(score_row(static_cast<std::int64_t>(t), 0) + offset);
        e_.multiply_tile(Op::M_BTMM, k, q);
        e_.write_out(Op::M_BMM_WO, s);
      }
    }
  }

  void multiply_values(std::size_t j, std::int64_t slab) {
    const Job& job = jobs_[j];
    e_.set_csr(Csr::kBmmScale, std::bit_cast<std::uint32_t>(1.0f));
    for (std::int64_t u = 0; u < lane_groups(); ++u) {
      const LaneGroup& lane = lanes(slab, u);
      e_.set_csr(Csr::kBmmGroup, static_cast<std::uint32_t>(lane.sharing));
      const auto offset = static_cast<std::uint32_t>(u * m_.mlen);
      for (std::size_t t = 0; t < job.tiles; ++t) {
        const Gp v = e_.reg(tile_address(j, lane.kv_group, t, true) + static_cast<std::uint32_t>(lane.kv_lane)),
                 p = e_.reg(score_row(static_cast<std::int64_t>(t), 0) + offset);
        e_.multiply_tile(Op::M_BMM, v, p);
      }
      e_.write_out(Op::M_BMM_WO, e_.reg(c_.address(values_.row) + offset));
    }
  }

  /// Probabilities of rows [first, first + count) of the block, in place; maxima and sums. `out_row`: the first of them
  /// in the step.
  void softmax(const Job& job, const RowRun& run, std::int64_t first, std::int64_t count, std::int64_t slab,
               std::int64_t out_row) {
    const auto tiles = static_cast<std::int64_t>(job.tiles);
    const Gp s = e_.reg(score_row(0, first)), m = e_.reg(c_.address(maxima_.row + first)),
             l = e_.reg(c_.address(sums_.row + first)), t = e_.reg(c_.address(scratch_.row)), p = e_.reg();
    const Gp o = job.first_chunk ? Gp() : e_.reg(c_.address(out_, slab, out_row));
    const Step next = e_.step(rows_ * c_.vlen());
    const auto pattern = [&](std::int64_t tile) {
      return run.patterns[job.first_tile + static_cast<std::size_t>(tile)];
    };
    const auto mask = [&](std::int64_t tile) -> const Mask& {
      return masks_[job.sequence][static_cast<std::size_t>(pattern(tile))];
    };
    const auto each_tile = [&](auto body) {
      e_.copy(p, s);
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        body(tile);
        if (tile + 1 < tiles) e_.advance(p, next);
      }
    };
    // target <- op over the tiles, lane by lane; the first tile's row if there is only one.
    const auto combine = [&](Op op) -> const Gp& {
      if (tiles == 1) return s;
      e_.advance_from(p, s, next);
      for (std::int64_t tile = 1; tile < tiles; ++tile) {
        e_.vector_vv(op, t, tile == 1 ? s : t, p);
        if (tile + 1 < tiles) e_.advance(p, next);
      }
      return t;
    };
    e_.loop(count, [&] {
      each_tile([&](std::int64_t tile) {
        if (pattern(tile) == kAllVisible) return;
        const Gp limit = e_.reg(c_.address(mask(tile).limit.row));
        e_.vector_vv(Op::V_MIN_VV, p, p, limit);
      });
      const Gp& top = combine(Op::V_MAX_VV);
      if (job.first_chunk) {
        e_.vector_v(Op::V_RED_MAX_SEG, m, top);
      } else {
        e_.vector_v(Op::V_RED_MAX_SEG, t, top);
        e_.vector_vv(Op::V_MAX_VV, t, t, m);
        e_.vector_vv(Op::V_SUB_VV, m, m, t);
        e_.vector_v(Op::V_EXP_V, m, m);
        e_.vector_vv(Op::V_MUL_VV, l, l, m);
        e_.vector_vv(Op::V_MUL_VV, o, o, m);
        e_.shift(m, t, Gp(), 1);
      }
      each_tile([&](std::int64_t tile) {
        e_.vector_vv(Op::V_SUB_VV, p, p, m);
        e_.vector_v(Op::V_EXP_V, p, p);
        if (pattern(tile) == kAllVisible) return;
        const Gp factor = e_.reg(c_.address(mask(tile).factor.row));
        e_.vector_vv(Op::V_MUL_VV, p, p, factor);
      });
      const Gp& sum = combine(Op::V_ADD_VV);
      if (job.first_chunk) {
        e_.vector_v(Op::V_RED_SUM_SEG, l, sum);
      } else {
        e_.vector_v(Op::V_RED_SUM_SEG, t, sum);
        e_.vector_vv(Op::V_ADD_VV, l, l, t);
      }
      if (job.last_chunk) {
        e_.vector_v(Op::V_RECI_V, l, l);
        if (slots_[static_cast<std::size_t>(slab)]) {
          const Gp used = e_.reg(c_.address(slots_[static_cast<std::size_t>(slab)]->row));
          e_.vector_vv(Op::V_MUL_VV, l, l, used);
        }
      }
      for (const Gp* pointer : {&s, &m, &l}) e_.add(*pointer, *pointer, c_.vlen());
      if (!job.first_chunk) e_.add(o, o, c_.vlen());
    });
  }

  /// The chunk's P V to the output rows.
  void collect(const Job& job, std::int64_t slab, std::int64_t row, std::int64_t count) {
    const Gp v = e_.reg(c_.address(values_.row)), l = e_.reg(c_.address(sums_.row)),
             o = e_.reg(c_.address(out_, slab, row));
    e_.loop(count, [&] {
      const bool only = job.first_chunk && job.last_chunk;
      if (!only && job.first_chunk) e_.shift(o, v, Gp(), 1);
      if (!job.first_chunk) e_.vector_vv(Op::V_ADD_VV, o, o, v);
      if (job.last_chunk) e_.vector_vv(Op::V_MUL_VV, o, only ? v : o, l);
      for (const Gp* pointer : {&v, &l, &o}) e_.add(*pointer, *pointer, c_.vlen());
    });
  }

  StepContext& c_;
  Emitter& e_;
  const MachineConfig& m_;
  const op::Attention& o_;
  ValuePlace q_, out_;
  std::vector<LaneGroup> lanes_;
  std::vector<SequenceTiles> tiles_;
  std::vector<Job> jobs_;
  std::vector<std::vector<Mask>> masks_;
  std::vector<std::optional<Buffer>> slots_;
  std::int64_t block_ = 0, rows_ = 0;
  Buffer scores_, values_, sums_, maxima_, scratch_;
};

}  // namespace

Expected<void> lower(StepContext& c, const op::Attention& o) { return AttentionLowering(c, o).run(); }

}  // namespace dllm::npu
