#include <algorithm>
#include <functional>
#include <utility>

#include "npu_compiler/testing/reference/executor.h"

namespace dllm::npu::reference {
namespace {

constexpr Bf16 kLowest = 0xff7f;

/// The array's sizes.
struct ArrayShape {
  std::size_t tile;          ///< keys of a tile
  std::size_t slot;          ///< lanes of a head
  std::size_t piece;         ///< lanes of a head processed at once: MLEN of a head that is longer than HLEN
  std::size_t keys_at_once;  ///< keys of P V at once: MLEN for such heads
};

/// A tile of keys: visibility to the row, then scores, then probabilities.
struct Tile {
  std::int64_t first = 0;
  std::vector<bool> visible;
  std::vector<Bf16> p;
};

/// One head of one row: softmax over chunks of tiles, each rescaling the results so far.
class HeadAttention {
 public:
  using SumTree = std::function<Bf16(const std::vector<Bf16>& column)>;

  HeadAttention(const op::Attention& o, const MachineConfig& machine, const ArrayShape& shape, const Cache& cache,
                const QuantizedRow& unwritten, std::size_t kv_lane, SumTree sum_tree)
      : o_(o),
        m_(machine),
        shape_(shape),
        cache_(cache),
        unwritten_(unwritten),
        kv_lane_(kv_lane),
        sum_tree_(std::move(sum_tree)),
        out_(static_cast<std::size_t>(o.head_dim), Bf16{0}) {}

  /// Scores of the keys from `first` on; `sees(key)`: whether the row sees the key.
  template <class Sees>
  Tile score(const QuantizedRow& q, std::size_t q_lane, std::int64_t first, const Sees& sees) const {
    const auto block = static_cast<std::size_t>(std::min({m_.matrix_input.block, m_.matrix_kv.block, m_.hlen}));
    Tile tile{first, {}, {}};
    for (std::size_t j = 0; j < shape_.tile; ++j) {
      const std::int64_t key = first + static_cast<std::int64_t>(j);
      tile.visible.push_back(sees(key));
      if (!tile.visible.back()) {
        tile.p.push_back(kLowest);
        continue;
      }
      const QuantizedRow& k = cache_.k.at({o_.layer, key});
      WindowSum sum(m_.matrix_input, m_.matrix_kv, m_.contraction_bits);
      for (std::size_t lane = 0; lane < shape_.slot; lane += shape_.piece)
        sum.add(q, q_lane + lane, {.row = &k, .first = kv_lane_ + lane}, shape_.piece, block);
      tile.p.push_back(sum.scaled(o_.scale));
    }
    return tile;
  }

  void add(std::vector<Tile> chunk) {
    const Bf16 shrink = raise_maximum(chunk);
    const Bf16 sum = exponentiate(chunk);
    sum_ = first_ ? sum : bf16_add(bf16_mul(sum_, shrink), sum);
    const std::vector<Bf16> values = weigh_values(chunk);
    for (std::size_t d = 0; d < out_.size(); ++d)
      out_[d] = first_ ? values[d] : bf16_add(bf16_mul(out_[d], shrink), values[d]);
    first_ = false;
  }

  std::vector<Bf16> take() const {
    const Bf16 inverse = bf16_reciprocal(sum_);
    std::vector<Bf16> result;
    for (const Bf16 lane : out_) result.push_back(bf16_mul(lane, inverse));
    return result;
  }

 private:
  /// Maximum over the chunk and the results so far; returns the factor for the latter.
  Bf16 raise_maximum(const std::vector<Tile>& chunk) {
    Bf16 maximum = kLowest;
    for (const Tile& tile : chunk)
      for (const Bf16 s : tile.p) maximum = bf16_max(maximum, s);
    Bf16 shrink = 0;
    if (!first_) {
      maximum = bf16_max(maximum, maximum_);
      shrink = bf16_exp(bf16_sub(maximum_, maximum));
    }
    maximum_ = maximum;
    return shrink;
  }

  /// Turns scores into probabilities; returns their sum: tile by tile per lane, then over the lanes.
  Bf16 exponentiate(std::vector<Tile>& chunk) const {
    std::vector<Bf16> column(shape_.tile, Bf16{0});
    for (std::size_t t = 0; t < chunk.size(); ++t)
      for (std::size_t j = 0; j < shape_.tile; ++j) {
        Bf16& p = chunk[t].p[j];
        p = chunk[t].visible[j] ? bf16_exp(bf16_sub(p, maximum_)) : Bf16{0};
        column[j] = t == 0 ? p : bf16_add(column[j], p);
      }
    return sum_tree_(column);
  }

  /// P V by dimension: one instruction per tile, one write-out per chunk.
  std::vector<Bf16> weigh_values(const std::vector<Tile>& chunk) const {
    std::vector<WindowSum> sums(out_.size(), WindowSum(m_.matrix_input, m_.matrix_kv, m_.contraction_bits));
    for (const Tile& tile : chunk) {
      std::vector<float> p;
      for (const Bf16 lane : tile.p) p.push_back(bf16_to_f32(lane));
      const QuantizedRow a = quantize(m_.matrix_input, p);
      for (std::size_t first = 0; first < shape_.tile; first += shape_.keys_at_once) {
        std::vector<const QuantizedRow*> keys;
        for (std::size_t j = first; j < first + shape_.keys_at_once; ++j) {
          const auto found = cache_.v.find({o_.layer, tile.first + static_cast<std::int64_t>(j)});
          keys.push_back(found == cache_.v.end() ? &unwritten_ : &found->second);
        }
        for (std::size_t d = 0; d < sums.size(); ++d)
          sums[d].add(a, first, {.rows = &keys, .first = kv_lane_ + d}, shape_.keys_at_once, 1);
      }
    }
    std::vector<Bf16> values;
    for (const WindowSum& sum : sums) values.push_back(sum.scaled(1.0f));
    return values;
  }

  const op::Attention& o_;
  const MachineConfig& m_;
  const ArrayShape& shape_;
  const Cache& cache_;
  const QuantizedRow& unwritten_;
  std::size_t kv_lane_;
  SumTree sum_tree_;
  bool first_ = true;
  Bf16 maximum_ = 0, sum_ = 0;
  std::vector<Bf16> out_;  ///< by dimension
};

/// First keys of the tiles that contain a key visible to any row of the sequence.
std::vector<std::int64_t> seen_tiles(const SequenceSpec& sequence, std::int64_t key_tile, std::int64_t window) {
  std::int64_t end = 0;
  for (const PositionRange& range : sequence.visible) end = std::max<std::int64_t>(end, range.end);
  std::vector<std::int64_t> tiles;
  for (std::int64_t first = 0; first < end; first += key_tile) {
    bool any = false;
    for (std::size_t row = 0; row < sequence.positions.size() && !any; ++row)
      for (std::int64_t j = first; j < first + key_tile; ++j) any = any || sequence.sees(row, j, window);
    if (any) tiles.push_back(first);
  }
  return tiles;
}

}  // namespace

// Softmax over the visible keys in tiles (key_tile()); tiles without visible keys are left out, and every
// `chunk_tiles` of the others form one chunk.
void Executor::run(const op::Attention& o) {
  const std::int64_t keys = key_tile(sram_shape(m_), o.head_dim);
  const auto tile = static_cast<std::size_t>(keys), slot = static_cast<std::size_t>(map(o.q).hlen);
  const auto mlen = static_cast<std::size_t>(m_.mlen), chunk = static_cast<std::size_t>(layout_.chunk_tiles);
  const ArrayShape shape =
      o.head_dim > m_.hlen ? ArrayShape{tile, slot, mlen, mlen} : ArrayShape{tile, slot, slot, tile};
  const QuantizedRow unwritten = quantize(m_.vector_kv, std::vector<float>(lanes(map(o.q)), 0.0f));
  const auto sum_tree_of = [this](const std::vector<Bf16>& column) {
    float running = 0;
    return sum_tree(column, 0, column.size(), running);
  };
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const SequenceSpec& sequence = spec_->sequences[rows_[r].sequence];
    const std::vector<std::int64_t> tiles = seen_tiles(sequence, keys, o.window);
    std::vector<float> row;
    for (const Bf16 lane : value(o.q)[r]) row.push_back(bf16_to_f32(lane));
    const QuantizedRow q = quantize(m_.matrix_input, row);
    const auto sees = [&](std::int64_t key) { return sequence.sees(rows_[r].index, key, o.window); };
    for (std::int64_t head = 0; head < o.heads; ++head) {
      const auto kv_lane = static_cast<std::size_t>(head / (o.heads / o.kv_heads)) * slot;
      HeadAttention attention(o, m_, shape, *(*caches_)[rows_[r].sequence], unwritten, kv_lane, sum_tree_of);
      const auto q_lane = static_cast<std::size_t>(map(o.q).lane(head * o.head_dim));
      for (std::size_t begin = 0; begin < tiles.size(); begin += chunk) {
        std::vector<Tile> part;
        for (std::size_t t = begin; t < std::min(begin + chunk, tiles.size()); ++t)
          part.push_back(attention.score(q, q_lane, tiles[t], sees));
        attention.add(std::move(part));
      }
      const std::vector<Bf16> result = attention.take();
      for (std::size_t d = 0; d < result.size(); ++d)
        value(o.out)[r][static_cast<std::size_t>(map(o.out).lane(head * o.head_dim + static_cast<std::int64_t>(d)))] =
            result[d];
    }
  }
}

}  // namespace dllm::npu::reference
