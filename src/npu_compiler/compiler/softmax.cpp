#include "npu_compiler/compiler/softmax.h"

#include <algorithm>

#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu {
namespace {

/// Limits of a score: the lowest is finite, so that lowest - lowest is 0.
bool masked(const KeyMask& mask) { return mask.limit >= 0; }

/// One chunk holds all keys: every tile of `group` rows has a register, and the rows are interleaved instruction by
/// instruction to hide latency.
class ShortRows {
 public:
  ShortRows(StepContext& c, const SoftmaxRows& r, std::int64_t group) : c_(c), e_(c.e), r_(r), group_(group) {}

  /// General registers, including the loop's counter.
  static std::int64_t registers(const SoftmaxRows& r, std::int64_t group) {
    return group * (r.tiles + 2) + 2 * std::ranges::count_if(r.masks, masked) + 1;
  }

  void run(std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    for (std::int64_t g = 0; g < group_; ++g) {
      Row& row = rows_.emplace_back();
      for (std::int64_t t = 0; t < r_.tiles; ++t)
        row.tiles.push_back(e_.reg(c_.address(r_.scores + t * r_.stride + first + g)));
      row.sum = e_.reg(c_.address(r_.sums + first + g));
      row.scratch = e_.reg(c_.address(r_.scratch + g));
    }
    for (const KeyMask& mask : r_.masks) {
      limits_.push_back(masked(mask) ? e_.reg(c_.address(mask.limit)) : Gp());
      factors_.push_back(masked(mask) ? e_.reg(c_.address(mask.factor)) : Gp());
    }
    e_.loop(count / group_, [this] { body(); });
  }

 private:
  struct Row {
    std::vector<Gp> tiles;
    Gp sum, scratch;
  };

  template <class Emit>
  void each(Emit emit) {
    for (const Row& row : rows_) emit(row);
  }
  template <class Emit>
  void each_tile(Emit emit) {
    for (std::size_t t = 0; t < to_size(r_.tiles); ++t) each([&](const Row& row) { emit(row, t); });
  }
  /// scratch <- op over the tiles; emits nothing for one tile.
  void combine(Op op) {
    for (std::size_t t = 1; t < to_size(r_.tiles); ++t)
      each([&](const Row& row) { e_.vector_vv(op, row.scratch, t == 1 ? row.tiles[0] : row.scratch, row.tiles[t]); });
  }
  const Gp& combined(const Row& row) const { return r_.tiles == 1 ? row.tiles[0] : row.scratch; }

  void body() {
    each_tile([&](const Row& row, std::size_t t) {
      if (masked(r_.masks[t])) e_.vector_vv(Op::V_MIN_VV, row.tiles[t], row.tiles[t], limits_[t]);
    });
    combine(Op::V_MAX_VV);
    each([&](const Row& row) { e_.vector_v(Op::V_RED_MAX_SEG, row.scratch, combined(row)); });
    each_tile(
        [&](const Row& row, std::size_t t) { e_.vector_vv(Op::V_SUB_VV, row.tiles[t], row.tiles[t], row.scratch); });
    each_tile([&](const Row& row, std::size_t t) { e_.vector_v(Op::V_EXP_V, row.tiles[t], row.tiles[t]); });
    each_tile([&](const Row& row, std::size_t t) {
      if (masked(r_.masks[t])) e_.vector_vv(Op::V_MUL_VV, row.tiles[t], row.tiles[t], factors_[t]);
    });
    if (r_.adds) {
      combine(Op::V_ADD_VV);
      each([&](const Row& row) { e_.vector_v(Op::V_RED_SUM_SEG, row.sum, combined(row)); });
    }
    each([&](const Row& row) {
      for (const Gp& tile : row.tiles) e_.add(tile, tile, group_ * c_.vlen());
      e_.add(row.sum, row.sum, group_ * c_.vlen());
    });
  }

  StepContext& c_;
  Emitter& e_;
  const SoftmaxRows& r_;
  std::int64_t group_;
  std::vector<Row> rows_;
  std::vector<Gp> limits_, factors_;
};

/// Any number of tiles, one of several chunks: a row at a time, with a pointer that moves over its tiles.
void long_rows(StepContext& c, const SoftmaxRows& r) {
  Emitter& e = c.e;
  const Gp s = e.reg(c.address(r.scores)), l = e.reg(c.address(r.sums)), t = e.reg(c.address(r.scratch)),
           m = e.reg(c.address(r.running ? r.maxima : r.scratch + 1)), p = e.reg();
  const Gp o = r.first_chunk ? Gp() : e.reg(c.address(r.out));
  const AddressStride next = e.step(r.stride * c.vlen());
  const auto each_tile = [&](auto body) {
    e.copy(p, s);
    for (std::int64_t tile = 0; tile < r.tiles; ++tile) {
      body(r.masks[to_size(tile)]);
      if (tile + 1 < r.tiles) e.advance(p, next);
    }
  };
  const auto combine = [&](Op op) -> const Gp& {
    if (r.tiles == 1) return s;
    e.advance_from(p, s, next);
    for (std::int64_t tile = 1; tile < r.tiles; ++tile) {
      e.vector_vv(op, t, tile == 1 ? s : t, p);
      if (tile + 1 < r.tiles) e.advance(p, next);
    }
    return t;
  };
  e.loop(r.count, [&] {
    each_tile([&](const KeyMask& mask) {
      if (!masked(mask)) return;
      const Gp limit = e.reg(c.address(mask.limit));
      e.vector_vv(Op::V_MIN_VV, p, p, limit);
    });
    const Gp& top = combine(Op::V_MAX_VV);
    if (r.first_chunk) {
      e.vector_v(Op::V_RED_MAX_SEG, m, top);
    } else {
      e.vector_v(Op::V_RED_MAX_SEG, t, top);
      e.vector_vv(Op::V_MAX_VV, t, t, m);
      e.vector_vv(Op::V_SUB_VV, m, m, t);
      e.vector_v(Op::V_EXP_V, m, m);
      e.vector_vv(Op::V_MUL_VV, l, l, m);
      e.vector_vv(Op::V_MUL_VV, o, o, m);
      e.shift(m, t, Gp(), 1);
    }
    each_tile([&](const KeyMask& mask) {
      e.vector_vv(Op::V_SUB_VV, p, p, m);
      e.vector_v(Op::V_EXP_V, p, p);
      if (!masked(mask)) return;
      const Gp factor = e.reg(c.address(mask.factor));
      e.vector_vv(Op::V_MUL_VV, p, p, factor);
    });
    if (r.adds) {
      const Gp& sum = combine(Op::V_ADD_VV);
      e.vector_v(Op::V_RED_SUM_SEG, r.first_chunk ? l : t, sum);
      if (!r.first_chunk) e.vector_vv(Op::V_ADD_VV, l, l, t);
    }
    e.add(s, s, c.vlen());
    e.add(l, l, c.vlen());
    if (r.running) e.add(m, m, c.vlen());
    if (!r.first_chunk) e.add(o, o, c.vlen());
  });
}

}  // namespace

void emit_softmax(StepContext& c, const SoftmaxRows& r) {
  constexpr std::int64_t kRegisters = 15;
  if (r.running || ShortRows::registers(r, 1) > kRegisters) return long_rows(c, r);
  const std::int64_t group = ShortRows::registers(r, 2) <= kRegisters ? 2 : 1, together = r.count / group * group;
  ShortRows(c, r, group).run(0, together);
  ShortRows(c, r, 1).run(together, r.count - together);
}

Expected<const std::vector<std::vector<KeyMask>>*> key_masks(StepContext& c, StepContext::TileKey key) {
  if (const auto found = c.key_masks.find(key); found != c.key_masks.end()) return &found->second;
  std::vector<std::vector<KeyMask>> masks;
  const std::vector<SequenceTiles>& plans = c.sequence_tiles(key);
  for (std::size_t s = 0; s < plans.size(); ++s) {
    const SequenceTiles& plan = plans[s];
    if (s > 0 && plan.patterns == plans[s - 1].patterns) {
      masks.push_back(masks.back());
      continue;
    }
    std::vector<KeyMask>& of_sequence = masks.emplace_back();
    for (const std::vector<bool>& pattern : plan.patterns) {
      std::vector<Bf16> limit(to_size(c.vlen())), factor(limit.size());
      for (std::size_t lane = 0; lane < limit.size(); ++lane) {
        const bool visible = pattern[lane % pattern.size()];
        limit[lane] = visible ? c.infinity() : c.lowest();
        factor[lane] = visible ? c.one() : Bf16{0};
      }
      DLLM_TRY(const Buffer low, c.constant_row(limit));
      DLLM_TRY(const Buffer zero, c.constant_row(factor));
      of_sequence.push_back({low.row, zero.row});
    }
  }
  return &(c.key_masks[key] = std::move(masks));
}

}  // namespace dllm::npu
