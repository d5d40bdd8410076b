// Softmax over the visible keys in chunks of tiles, as reference/attention.cpp defines it, for all rows of a sequence
// and one query head at a time.

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "npu/accuracy/executor.h"
#include "numerics/half.h"

namespace dllm::npu::accuracy {
namespace {

/// What masked scores are: the lowest number of the precision.
float lowest(VectorPrecision precision) {
  switch (precision) {
    case VectorPrecision::kBF16:
      return bf16_to_f32(0xff7f);
    case VectorPrecision::kF16:
      return -65504.0f;
    case VectorPrecision::kF32:
      break;
  }
  return std::numeric_limits<float>::lowest();
}

/// What the rows of a sequence see: first keys of the tiles of which any row sees a key, and per row the end of what a
/// causal plan shows it.
struct Sight {
  std::vector<std::int64_t> tiles;
  std::vector<std::uint8_t> key;  ///< by position: in a visible range
  std::vector<std::int64_t> limit;

  Sight(const StepPlan& plan, std::int64_t key_tile) {
    std::int64_t end = 0, furthest = 0;
    for (const PositionRange& range : plan.visible) end = std::max<std::int64_t>(end, range.end);
    key.assign(static_cast<std::size_t>(round_up(end, key_tile)), 0);
    for (const PositionRange& range : plan.visible)
      std::fill(key.begin() + range.begin, key.begin() + range.end, std::uint8_t{1});
    for (const PlanRow& row : plan.rows) {
      const std::int64_t block = plan.causal_block;
      limit.push_back(block > 0 ? (row.position / block + 1) * block : std::numeric_limits<std::int64_t>::max());
      furthest = std::max(furthest, limit.back());
    }
    for (std::int64_t first = 0; first < end; first += key_tile)
      for (std::int64_t j = first; j < first + key_tile; ++j)
        if (key[static_cast<std::size_t>(j)] != 0 && j < furthest) {
          tiles.push_back(first);
          break;
        }
  }
  bool sees(std::size_t row, std::int64_t j) const { return key[static_cast<std::size_t>(j)] != 0 && j < limit[row]; }
};

/// One query head of the rows of a sequence.
class HeadAttention {
 public:
  HeadAttention(const op::Attention& o, const HeadShape& shape, VectorPrecision precision, const LaneKvCache& cache,
                const Sight& sight, std::int64_t rows)
      : o_(o), s_(shape), precision_(precision), cache_(cache), sight_(sight), rows_(rows) {
    const auto n = static_cast<std::size_t>(rows), width = static_cast<std::size_t>(rows * shape.head_dim);
    maximum_.assign(n, 0.0f);
    sum_.assign(n, 0.0f);
    out_.assign(width, 0.0f);
  }

  /// `q`: the rows' quantized queries of this head.
  void add(const OperandRows& q, std::int64_t kv_head, std::span<const std::int64_t> tiles) {
    keys_ = static_cast<std::int64_t>(tiles.size()) * s_.key_tile;
    p_.resize(static_cast<std::size_t>(rows_ * keys_));
    shrink_.assign(static_cast<std::size_t>(rows_), 0.0f);
    score(q, kv_head, tiles);
    for (std::int64_t r = 0; r < rows_; ++r) soften(r, tiles);
    weigh(kv_head, tiles);
    first_ = false;
  }

  float result(std::int64_t row, std::int64_t d) const {
    return round(out_[static_cast<std::size_t>(row * s_.head_dim + d)] *
                 vector_reciprocal(precision_, sum_[static_cast<std::size_t>(row)]));
  }

 private:
  float round(float x) const { return round_to(precision_, x); }
  float* probabilities(std::int64_t row) { return p_.data() + row * keys_; }

  void score(const OperandRows& q, std::int64_t kv_head, std::span<const std::int64_t> tiles) {
    sums_.resize(static_cast<std::size_t>(rows_ * kPanel));
    for (std::size_t t = 0; t < tiles.size(); ++t)
      for (std::int64_t first = 0, count = 0; first < s_.key_tile; first += count) {
        // Tiles are powers of two, and may be shorter than a panel.
        const std::int64_t key = tiles[t] + first, lane = key % kPanel;
        count = std::min(kPanel - lane, s_.key_tile - first);
        WindowProduct product = cache_.keys(o_.layer, kv_head, key / kPanel);
        product.rows = rows_;
        product.a = q.a.data();
        product.a_stride = q.terms;
        product.a_exponents = q.exponents.data();
        product.a_exponents_stride = q.groups;
        add_windows(s_.qk.rule, product, sums_.data());
        const std::int64_t at = static_cast<std::int64_t>(t) * s_.key_tile + first;
        for (std::int64_t r = 0; r < rows_; ++r)
          for (std::int64_t j = 0; j < count; ++j)  // M_BMM_WO: to float32, times the scale, to the precision
            probabilities(r)[at + j] =
                round(static_cast<float>(sums_[static_cast<std::size_t>(r * kPanel + lane + j)]) * o_.scale);
      }
  }

  /// Scores become e^(score - maximum), and their sum joins what came before, rescaled to the new maximum.
  void soften(std::int64_t r, std::span<const std::int64_t> tiles) {
    const auto row = static_cast<std::size_t>(r);
    float* p = probabilities(r);
    float maximum = lowest(precision_);
    for (std::int64_t i = 0; i < keys_; ++i) {
      const std::int64_t key = tiles[static_cast<std::size_t>(i / s_.key_tile)] + i % s_.key_tile;
      if (sight_.sees(row, key)) {
        maximum = vector_max(maximum, p[i]);
      } else {
        p[i] = -std::numeric_limits<float>::infinity();
      }
    }
    if (!first_) {
      maximum = vector_max(maximum, maximum_[row]);
      shrink_[row] = vector_exp(precision_, round(maximum_[row] - maximum));
    }
    maximum_[row] = maximum;
    column_.assign(static_cast<std::size_t>(s_.key_tile), 0.0f);
    for (std::int64_t i = 0; i < keys_; ++i) {
      const bool seen = p[i] != -std::numeric_limits<float>::infinity();
      p[i] = seen ? vector_exp(precision_, round(p[i] - maximum)) : 0.0f;
      float& sum = column_[static_cast<std::size_t>(i % s_.key_tile)];
      sum = i < s_.key_tile ? p[i] : round(sum + p[i]);
    }
    const float sum = round(sum_tree(column_, 0.0f));
    sum_[row] = first_ ? sum : round(round(sum_[row] * shrink_[row]) + sum);
  }

  /// P V by dimension: instructions of a tile or less, one write-out per chunk.
  void weigh(std::int64_t kv_head, std::span<const std::int64_t> tiles) {
    const auto size = static_cast<std::size_t>(rows_ * keys_);
    terms_.resize(size);
    exponents_.resize(size);
    const auto block = s_.pv.a.block();
    for (std::int64_t r = 0; r < rows_; ++r) {
      quantize(s_.pv.a, s_.pv.rule.integers(), {probabilities(r), static_cast<std::size_t>(keys_)}, operand_);
      std::ranges::copy(operand_.lanes, terms_.begin() + r * keys_);
      for (std::int64_t i = 0; i < keys_ && s_.pv.rule.integers(); ++i)
        exponents_[static_cast<std::size_t>(r * keys_ + i)] = operand_.exponents[static_cast<std::size_t>(i / block)];
    }
    ends_.clear();
    for (std::int64_t end = s_.keys_at_once; end <= keys_; end += s_.keys_at_once)
      ends_.push_back(static_cast<std::int32_t>(end));
    for (std::int64_t panel = 0; panel < s_.v_panels(); ++panel) {
      WindowProduct product = values(kv_head, panel, tiles);
      product.rows = rows_;
      product.a = terms_.data();
      product.a_stride = keys_;
      product.a_exponents = exponents_.data();
      product.a_exponents_stride = keys_;
      product.ends = ends_.data();
      product.instructions = static_cast<std::int64_t>(ends_.size());
      add_windows(s_.pv.rule, product, sums_.data());
      gather(panel);
    }
  }

  void gather(std::int64_t panel) {
    const std::int64_t count = std::min(kPanel, s_.head_dim - panel * kPanel);
    for (std::int64_t r = 0; r < rows_; ++r)
      for (std::int64_t lane = 0; lane < count; ++lane) {
        const float value = round(static_cast<float>(sums_[static_cast<std::size_t>(r * kPanel + lane)]));
        float& out = out_[static_cast<std::size_t>(r * s_.head_dim + panel * kPanel + lane)];
        out = first_ ? value : round(round(out * shrink_[static_cast<std::size_t>(r)]) + value);
      }
  }

  /// The keys of the chunk, where the cache has them if its tiles follow each other, else copied together.
  WindowProduct values(std::int64_t kv_head, std::int64_t panel, std::span<const std::int64_t> tiles) {
    WindowProduct product = cache_.values(o_.layer, kv_head, panel, tiles.front());
    if (tiles.back() - tiles.front() == keys_ - s_.key_tile) return product;
    const std::int64_t cells = s_.key_tile * kPanel;
    v_narrow_.clear(), v_wide_.clear(), v_exponents_.clear();
    for (const std::int64_t tile : tiles) {
      const WindowProduct part = cache_.values(o_.layer, kv_head, panel, tile);
      if (part.narrow != nullptr) v_narrow_.insert(v_narrow_.end(), part.narrow, part.narrow + cells);
      if (part.wide != nullptr) v_wide_.insert(v_wide_.end(), part.wide, part.wide + cells);
      if (s_.pv.rule.integers()) v_exponents_.insert(v_exponents_.end(), part.w_exponents, part.w_exponents + cells);
    }
    product.narrow = product.narrow == nullptr ? nullptr : v_narrow_.data();
    product.wide = product.wide == nullptr ? nullptr : v_wide_.data();
    product.w_exponents = v_exponents_.data();
    return product;
  }

  const op::Attention& o_;
  const HeadShape& s_;
  VectorPrecision precision_;
  const LaneKvCache& cache_;
  const Sight& sight_;
  std::int64_t rows_, keys_ = 0;
  bool first_ = true;
  std::vector<float> p_, shrink_, maximum_, sum_, out_, column_, terms_;
  std::vector<std::int16_t> exponents_, v_narrow_, v_exponents_;
  std::vector<float> v_wide_;
  std::vector<std::int32_t> ends_;
  std::vector<double> sums_;
  Operand operand_;
};

}  // namespace

void Executor::run(const op::Attention& o) {
  const HeadShape& shape = heads_.at(o.layer);
  const LaneMap &q_map = map(o.q), &out_map = map(o.out);
  std::vector<Sight> sights;
  for (const SequenceStep& step : batch_) sights.emplace_back(step.plan, shape.key_tile);
  const std::int64_t tasks = static_cast<std::int64_t>(batch_.size()) * o.heads;
  const auto chunk = static_cast<std::size_t>(layout_.chunk_tiles);
  parallel(pool_, tasks, [&](std::int64_t task, int) {
    const auto sequence = static_cast<std::size_t>(task / o.heads);
    const std::int64_t head = task % o.heads, first = first_rows_[sequence], rows = first_rows_[sequence + 1] - first;
    if (rows == 0) return;
    const std::int64_t slot = q_map.slot_of(head) * q_map.hlen;
    OperandRows q;
    q.reset(rows, shape.contraction);
    Operand row;
    for (std::int64_t r = 0; r < rows; ++r) {
      quantize(
          profile_.activation, shape.qk.rule.integers(),
          value(o.q).lanes(first + r).subspan(static_cast<std::size_t>(slot), static_cast<std::size_t>(shape.slot)),
          row);
      shape.contraction.gather(row, profile_.activation.block(), q.a.data() + r * q.terms,
                               q.exponents.data() + r * q.groups);
    }
    const auto& cache = static_cast<const LaneKvCache&>(*batch_[sequence].cache);
    const std::span<const std::int64_t> tiles = sights[sequence].tiles;
    HeadAttention attention(o, shape, profile_.vector, cache, sights[sequence], rows);
    for (std::size_t begin = 0; begin < tiles.size(); begin += chunk)
      attention.add(q, head / (o.heads / o.kv_heads), tiles.subspan(begin, std::min(chunk, tiles.size() - begin)));
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t d = 0; d < o.head_dim; ++d)
        value(o.out).row(first + r)[out_map.lane(head * o.head_dim + d)] = attention.result(r, d);
  });
}

}  // namespace dllm::npu::accuracy
