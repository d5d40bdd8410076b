#include <algorithm>

#include "npu/reference/executor.h"

namespace dllm::npu::reference {
namespace {

constexpr Bf16 kLowest = 0xff7f;

/// One head of one row.
struct HeadState {
  Bf16 maximum = 0, sum = 0;
  std::vector<Bf16> out;  ///< by dimension
};

/// A tile of HLEN keys: what the row sees of it, then scores, then probabilities.
struct Tile {
  std::int64_t first = 0;
  std::vector<bool> visible;
  std::vector<Bf16> p;
};

}  // namespace

// Softmax over the visible keys in tiles of HLEN positions; tiles that the sequence does not see at all are left out,
// and every `chunk_tiles` of the others are one chunk.
void Executor::run(const op::Attention& o) {
  // Keys of a tile; the array takes MLEN lanes of a longer head, and MLEN of its keys, at a time.
  const auto hlen = static_cast<std::size_t>(layout_.key_tile);
  const auto slot = static_cast<std::size_t>(map(o.q).hlen);
  const bool wide = o.head_dim > m_.hlen;
  const std::size_t piece = wide ? static_cast<std::size_t>(m_.mlen) : slot, keys_at_once = wide ? piece : hlen;
  const auto dim = static_cast<std::size_t>(o.head_dim);
  const std::int64_t share = o.heads / o.kv_heads;
  const QuantizedRow empty = quantize(m_.vector_kv, std::vector<float>(lanes(map(o.q)), 0.0f));
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    const SequenceSpec& sequence = spec_->sequences[rows_[r].sequence];
    Cache& cache = *(*caches_)[rows_[r].sequence];
    std::int64_t end = 0;
    for (const PositionRange& range : sequence.visible) end = std::max<std::int64_t>(end, range.end);
    std::vector<std::int64_t> tiles;
    for (std::int64_t first = 0; first < end; first += layout_.key_tile) {
      bool any = false;
      for (std::size_t row = 0; row < sequence.positions.size() && !any; ++row)
        for (std::int64_t j = first; j < first + layout_.key_tile; ++j) any = any || sequence.sees(row, j);
      if (any) tiles.push_back(first);
    }
    const QuantizedRow q = quantize(m_.matrix_input, [&] {
      std::vector<float> row;
      for (const Bf16 lane : value(o.q)[r]) row.push_back(bf16_to_f32(lane));
      return row;
    }());
    for (std::int64_t head = 0; head < o.heads; ++head) {
      const auto q_lane = static_cast<std::size_t>(map(o.q).lane(head * o.head_dim));
      const auto kv_lane = static_cast<std::size_t>(head / share) * slot;
      HeadState state;
      const auto chunk = static_cast<std::size_t>(layout_.chunk_tiles);
      for (std::size_t begin = 0; begin < tiles.size(); begin += chunk) {
        std::vector<Tile> part;
        for (std::size_t t = begin; t < std::min(begin + chunk, tiles.size()); ++t) {
          Tile tile{tiles[t], {}, {}};
          for (std::size_t j = 0; j < hlen; ++j) {
            const std::int64_t key = tile.first + static_cast<std::int64_t>(j);
            tile.visible.push_back(sequence.sees(rows_[r].index, key));
            if (!tile.visible.back()) {
              tile.p.push_back(kLowest);
              continue;
            }
            const QuantizedRow& k = cache.k.at({o.layer, key});
            WindowSum sum(m_.matrix_input, m_.matrix_kv, m_.contraction_bits);
            for (std::size_t lane = 0; lane < slot; lane += piece)
              sum.add(q, q_lane + lane, {.row = &k, .first = kv_lane + lane}, piece,
                      static_cast<std::size_t>(std::min({m_.matrix_input.block, m_.matrix_kv.block, m_.hlen})));
            tile.p.push_back(sum.scaled(o.scale));
          }
          part.push_back(std::move(tile));
        }
        // Maximum over the chunk, then against what came before.
        Bf16 maximum = kLowest;
        for (const Tile& tile : part)
          for (const Bf16 s : tile.p) maximum = bf16_max(maximum, s);
        Bf16 shrink = 0;
        if (begin > 0) {
          maximum = bf16_max(maximum, state.maximum);
          shrink = bf16_exp(bf16_sub(state.maximum, maximum));
        }
        state.maximum = maximum;
        std::vector<Bf16> column(hlen, Bf16{0});
        for (std::size_t t = 0; t < part.size(); ++t)
          for (std::size_t j = 0; j < hlen; ++j) {
            Bf16& p = part[t].p[j];
            p = part[t].visible[j] ? bf16_exp(bf16_sub(p, maximum)) : Bf16{0};
            column[j] = t == 0 ? p : bf16_add(column[j], p);
          }
        float running = 0;
        const Bf16 sum = sum_tree(column, 0, hlen, running);
        state.sum = begin == 0 ? sum : bf16_add(bf16_mul(state.sum, shrink), sum);
        // P V: one instruction per tile, one write-out per chunk.
        std::vector<WindowSum> sums(dim, WindowSum(m_.matrix_input, m_.matrix_kv, m_.contraction_bits));
        for (const Tile& tile : part) {
          std::vector<float> p;
          for (const Bf16 lane : tile.p) p.push_back(bf16_to_f32(lane));
          const QuantizedRow a = quantize(m_.matrix_input, p);
          for (std::size_t first = 0; first < hlen; first += keys_at_once) {
            std::vector<const QuantizedRow*> keys;
            for (std::size_t j = first; j < first + keys_at_once; ++j) {
              const auto found = cache.v.find({o.layer, tile.first + static_cast<std::int64_t>(j)});
              keys.push_back(found == cache.v.end() ? &empty : &found->second);  // memory that was never written
            }
            for (std::size_t d = 0; d < dim; ++d)
              sums[d].add(a, first, {.rows = &keys, .first = kv_lane + d}, keys_at_once, 1);
          }
        }
        for (std::size_t d = 0; d < dim; ++d) {
          const Bf16 pv = sums[d].scaled(1.0f);
          if (begin == 0)
            state.out.push_back(pv);
          else
            state.out[d] = bf16_add(bf16_mul(state.out[d], shrink), pv);
        }
      }
      const Bf16 inverse = bf16_reciprocal(state.sum);
      for (std::size_t d = 0; d < dim; ++d)
        value(o.out)[r][static_cast<std::size_t>(map(o.out).lane(head * o.head_dim + static_cast<std::int64_t>(d)))] =
            bf16_mul(state.out[d], inverse);
    }
  }
}

}  // namespace dllm::npu::reference
