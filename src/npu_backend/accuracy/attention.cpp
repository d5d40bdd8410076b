// Softmax over the visible keys in chunks of tiles, as reference/attention.cpp defines it, for all rows of a sequence
// and one query head at a time.

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "base/to_size.h"
#include "npu_backend/accuracy/executor.h"
#include "npu_backend/accuracy/lane_kernel.h"
#include "npu_backend/accuracy/sight.h"
#include "numerics/half.h"

namespace dllm::npu::accuracy {

/// The queries of a head for the keys of one segment of the cache, and the data that reverse the smoothing. A cache
/// without smoothing has one segment, whose factors are null.
struct QuerySegment {
  std::int32_t id = 0;
  OperandRows q;
  const ChannelFactors *k = nullptr, *v = nullptr;
  std::vector<float> offset;  ///< by row, added to the scores: scale q (c - c of the latest segment); empty: none
};

namespace {

/// The value of masked scores: the lowest number of the precision.
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

/// One query head of the rows of a sequence.
///
/// For smoothed K and V, k = f k_s + c: q k = (q f) k_s + q c. If all keys share one c, q c is the same for all scores
/// of a row, and softmax is invariant to it. Segments with other centres get the difference from the latest one's. V
/// needs sums per segment: with p the quantized probabilities, l their sum and l_s that of segment s,
///
///   sum p v / l = c + sum over s of (f_s (sum p v_s) / l + (c_s - c) l_s / l),   c the latest segment's centre,
///
/// so that a single segment's centre is added as it is.
class HeadAttention {
 public:
  HeadAttention(const op::Attention& o, const HeadShape& shape, VectorPrecision precision, const LaneKvCache& cache,
                const Sight& sight, std::int64_t rows, std::span<const QuerySegment> segments)
      : o_(o), s_(shape), precision_(precision), cache_(cache), sight_(sight), rows_(rows), segments_(segments) {
    const auto n = to_size(rows), width = to_size(rows * shape.head_dim);
    maximum_.assign(n, 0.0f);
    sum_.assign(n, 0.0f);
    out_.assign(segments.size(), std::vector<float>(width, 0.0f));
    share_.assign(segments.size(), std::vector<float>(n, 0.0f));
  }

  void add(std::int64_t kv_head, std::span<const std::int64_t> tiles) {
    keys_ = static_cast<std::int64_t>(tiles.size()) * s_.key_tile;
    positions_.clear();
    for (const std::int64_t tile : tiles)
      for (std::int64_t j = 0; j < s_.key_tile; ++j) positions_.push_back(tile + j);
    p_.resize(to_size(rows_ * keys_));
    shrink_.assign(to_size(rows_), 0.0f);
    tiles_ = tiles;
    sums_.resize(to_size(rows_ * kPanel));
    for (const QuerySegment& segment : segments_) score(segment, kv_head);
    for (std::int64_t r = 0; r < rows_; ++r) soften(r);
    quantize_probabilities();
    for (std::size_t s = 0; s < (smoothed() ? segments_.size() : 1); ++s) weigh(s, kv_head);
    first_ = false;
  }

  /// [head_dim]
  void result(std::int64_t row, float* result) const {
    const auto r = to_size(row), dims = to_size(s_.head_dim), first = r * dims;
    float total = smoothed() ? share_.front()[r] : sum_[r];
    for (std::size_t s = 1; s < share_.size() && smoothed(); ++s) total = round(total + share_[s][r]);
    const float inverse = vector_reciprocal(precision_, total);
    for (std::size_t d = 0; d < dims; ++d)
      result[d] = smoothed() ? unsmoothed(r, d, inverse) : round(out_.front()[first + d] * inverse);
  }

 private:
  float unsmoothed(std::size_t row, std::size_t channel, float inverse) const {
    const std::size_t at = row * to_size(s_.head_dim) + channel;
    const float centre = segments_.back().v->centre[channel];
    float sum = 0;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      const ChannelFactors& v = *segments_[s].v;
      sum = round(sum + round(round(out_[s][at] * inverse) * v.factor[channel]));
      const float apart = round(v.centre[channel] - centre);
      if (apart != 0.0f) sum = round(sum + round(apart * round(share_[s][row] * inverse)));
    }
    return round(sum + centre);
  }

  float round(float x) const { return round_to(precision_, x); }
  float* probabilities(std::int64_t row) { return p_.data() + row * keys_; }

  bool smoothed() const { return segments_.front().v != nullptr; }
  std::int64_t key_at(std::int64_t i) const { return positions_[to_size(i)]; }
  bool belongs(const QuerySegment& segment, std::int64_t i) const {
    return segments_.size() == 1 || cache_.segment_of(o_.layer, key_at(i)) == segment.id;
  }

  /// Scores of the keys of one segment.
  void score(const QuerySegment& segment, std::int64_t kv_head) {
    for (std::int64_t first = 0, count = 0; first < keys_; first += count) {
      // Tiles are powers of two, and may be shorter than a panel.
      const std::int64_t lane = key_at(first) % kPanel;
      count = std::min(kPanel - lane, s_.key_tile - first % s_.key_tile);
      bool any = false;
      for (std::int64_t j = 0; j < count && !any; ++j) any = belongs(segment, first + j);
      if (!any) continue;
      WindowProduct product = cache_.keys(o_.layer, kv_head, key_at(first) / kPanel);
      product.rows = rows_;
      product.a = segment.q.a.data();
      product.a_stride = segment.q.terms;
      product.a_exponents = segment.q.exponents.data();
      product.a_exponents_stride = segment.q.groups;
      add_windows(s_.qk.rule, product, sums_.data());
      for (std::int64_t r = 0; r < rows_ && segments_.size() == 1; ++r)
        lanes_.scale_sums(precision_, sums_.data() + r * kPanel + lane, o_.scale, count, probabilities(r) + first);
      for (std::int64_t r = 0; r < rows_ && segments_.size() > 1; ++r)
        for (std::int64_t j = 0; j < count; ++j) {
          if (!belongs(segment, first + j)) continue;
          // M_BMM_WO: to float32, times the scale, to the precision
          const float sum = static_cast<float>(sums_[to_size(r * kPanel + lane + j)]);
          float& score = probabilities(r)[first + j];
          score = round(sum * o_.scale);
          if (!segment.offset.empty()) score = round(score + segment.offset[to_size(r)]);
        }
    }
  }

  /// Scores become e^(score - maximum), and their sum is added to the previous one, rescaled to the new maximum.
  void soften(std::int64_t r) {
    const auto row = to_size(r);
    float* p = probabilities(r);
    seen_.resize(to_size(keys_));
    if (r == 0 || !sight_.same(row, row - 1))
      for (std::int64_t i = 0; i < keys_; ++i) seen_[to_size(i)] = sight_.sees(row, key_at(i)) ? 1 : 0;
    float maximum = lanes_.maximum(p, seen_.data(), keys_, lowest(precision_));
    if (!first_) {
      maximum = vector_max(maximum, maximum_[row]);
      shrink_[row] = vector_exp(precision_, round(maximum_[row] - maximum));
    }
    maximum_[row] = maximum;
    for (std::int64_t i = 0; i < keys_; ++i) p[i] -= maximum;
    lanes_.round(precision_, p, keys_);
    exp_lanes(precision_, {p, to_size(keys_)});
    for (std::int64_t i = 0; i < keys_; ++i)
      if (seen_[to_size(i)] == 0) p[i] = 0.0f;
    column_.assign(p, p + s_.key_tile);
    for (std::int64_t tile = s_.key_tile; tile < keys_; tile += s_.key_tile)
      lanes_.add(precision_, column_.data(), p + tile, s_.key_tile);
    const float sum = round(sum_tree(column_, 0.0f));
    sum_[row] = first_ ? sum : round(round(sum_[row] * shrink_[row]) + sum);
  }

  void quantize_probabilities() {
    const auto size = to_size(rows_ * keys_);
    terms_.resize(size);
    exponents_.resize(size);
    const auto block = s_.pv.a.block();
    for (std::int64_t r = 0; r < rows_; ++r) {
      const std::span<float> p(probabilities(r), to_size(keys_));
      quantize(s_.pv.a, s_.pv.rule.integers(), p, operand_);
      std::ranges::copy(operand_.lanes, terms_.begin() + r * keys_);
      for (std::size_t b = 0; b < operand_.exponents.size(); ++b)
        std::fill_n(exponents_.begin() + r * keys_ + static_cast<std::int64_t>(b) * block, block,
                    operand_.exponents[b]);
    }
    ends_.clear();
    for (std::int64_t end = s_.keys_at_once; end <= keys_; end += s_.keys_at_once)
      ends_.push_back(static_cast<std::int32_t>(end));
  }

  /// P V by dimension, over the keys of a segment: instructions of a tile or less, one write-out per chunk.
  void weigh(std::size_t segment, std::int64_t kv_head) {
    const std::vector<float>* terms = &terms_;
    if (smoothed() && segments_.size() > 1) {
      own_terms_ = terms_;
      for (std::int64_t i = 0; i < keys_; ++i)
        for (std::int64_t r = 0; r < rows_ && !belongs(segments_[segment], i); ++r)
          own_terms_[to_size(r * keys_ + i)] = 0.0f;
      terms = &own_terms_;
    }
    for (std::int64_t panel = 0; panel < s_.v_panels(); ++panel) {
      multiply(*terms, values(kv_head, panel));
      gather(segment, panel);
    }
    if (!smoothed()) return;
    multiply(*terms, ones());
    add_shares(segment);
  }

  void multiply(const std::vector<float>& terms, WindowProduct product) {
    product.rows = rows_;
    product.a = terms.data();
    product.a_stride = keys_;
    product.a_exponents = exponents_.data();
    product.a_exponents_stride = keys_;
    product.ends = ends_.data();
    product.instructions = static_cast<std::int64_t>(ends_.size());
    add_windows(s_.pv.rule, product, sums_.data());
  }

  /// Values of 1 in V's format: what the array multiplies to add up quantized probabilities.
  WindowProduct ones() {
    constexpr std::size_t kLongestBlock = 32;
    const auto cells = to_size(keys_ * kPanel);
    quantize(s_.pv.w, s_.pv.rule.integers(), std::vector<float>(kLongestBlock, 1.0f), operand_);
    const bool narrow = s_.pv.rule.kind == WindowRule::Kind::kNarrow;
    if (narrow)
      v_narrow_.assign(cells, static_cast<std::int16_t>(operand_.lanes.front()));
    else
      v_wide_.assign(cells, operand_.lanes.front());
    if (s_.pv.rule.integers()) v_exponents_.assign(cells, operand_.exponents.front());
    WindowProduct product;
    product.narrow = narrow ? v_narrow_.data() : nullptr;
    product.wide = narrow ? nullptr : v_wide_.data();
    product.w_exponents = v_exponents_.data();
    product.group = 1;
    return product;
  }

  void gather(std::size_t segment, std::int64_t panel) {
    const std::int64_t count = std::min(kPanel, s_.head_dim - panel * kPanel);
    for (std::int64_t r = 0; r < rows_ && first_; ++r)
      lanes_.scale_sums(precision_, sums_.data() + r * kPanel, 1.0f, count,
                        out_[segment].data() + r * s_.head_dim + panel * kPanel);
    for (std::int64_t r = 0; r < rows_ && !first_; ++r)
      for (std::int64_t lane = 0; lane < count; ++lane) {
        const float value = round(static_cast<float>(sums_[to_size(r * kPanel + lane)]));
        float& out = out_[segment][to_size(r * s_.head_dim + panel * kPanel + lane)];
        out = round(round(out * shrink_[to_size(r)]) + value);
      }
  }

  /// The sum of the segment's quantized probabilities.
  void add_shares(std::size_t segment) {
    for (std::int64_t r = 0; r < rows_; ++r) {
      const auto row = to_size(r);
      const float sum = round(static_cast<float>(sums_[to_size(r * kPanel)]));
      float& share = share_[segment][row];
      share = first_ ? sum : round(round(share * shrink_[row]) + sum);
    }
  }

  /// The keys of the chunk: in place if their tiles are adjacent in the cache, otherwise copied together.
  WindowProduct values(std::int64_t kv_head, std::int64_t panel) {
    WindowProduct product = cache_.values(o_.layer, kv_head, panel, tiles_.front());
    if (tiles_.back() - tiles_.front() == keys_ - s_.key_tile) return product;
    const std::int64_t cells = s_.key_tile * kPanel;
    v_narrow_.clear(), v_wide_.clear(), v_exponents_.clear();
    for (const std::int64_t tile : tiles_) {
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

  const LaneKernel& lanes_ = lane_kernel();
  const op::Attention& o_;
  const HeadShape& s_;
  VectorPrecision precision_;
  const LaneKvCache& cache_;
  const Sight& sight_;
  std::int64_t rows_, keys_ = 0;
  bool first_ = true;
  std::span<const QuerySegment> segments_;
  std::span<const std::int64_t> tiles_;          ///< of the chunk
  std::vector<std::vector<float>> out_, share_;  ///< by segment: sums of p v, of p
  std::vector<std::uint8_t> seen_;               ///< of a row, by key of the chunk
  std::vector<std::int64_t> positions_;          ///< by key of the chunk
  std::vector<float> p_, shrink_, maximum_, sum_, column_, terms_, own_terms_;
  std::vector<std::int16_t> exponents_, v_narrow_, v_exponents_;
  std::vector<float> v_wide_;
  std::vector<std::int32_t> ends_;
  std::vector<double> sums_;
  Operand operand_;
};

}  // namespace

/// The queries of a head and a sequence, once per segment of the cache.
std::vector<QuerySegment> Executor::query_segments(const op::Attention& o, std::size_t sequence, std::int64_t head) {
  const HeadShape& shape = heads_.at(o.layer);
  const auto& cache = static_cast<const LaneKvCache&>(*batch_[sequence].cache);
  const std::span<const LaneKvCache::Segment> known = cache.segments(o.layer);
  const std::int64_t first = first_rows_[sequence], rows = first_rows_[sequence + 1] - first;
  const auto slot = to_size(map(o.q).slot_of(head) * map(o.q).hlen), kv_head = to_size(head / (o.heads / o.kv_heads)),
             lanes = to_size(shape.slot), channels = to_size(shape.head_dim);
  std::vector<QuerySegment> segments(std::max<std::size_t>(1, known.size()));
  Operand row;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    QuerySegment& segment = segments[s];
    segment.id = static_cast<std::int32_t>(s);
    segment.q.reset(rows, shape.contraction);
    segment.q.bytes.clear();
    if (!known.empty() && cache.smoothing().keys != SmoothingCentre::kNone) segment.k = &known[s].k[kv_head];
    if (!known.empty() && cache.smoothing().values != SmoothingCentre::kNone) segment.v = &known[s].v[kv_head];
    const bool apart = segment.k != nullptr && s + 1 < known.size();
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::span<const float> q = value(o.q).lanes(first + r).subspan(slot, lanes);
      std::vector<float> scaled(q.begin(), q.end());
      float offset = 0;
      for (std::size_t d = 0; d < channels && segment.k != nullptr; ++d) {
        if (apart) offset += q[d] * (segment.k->centre[d] - known.back().k[kv_head].centre[d]);
        scaled[d] = round(q[d] * segment.k->factor[d]);
      }
      if (apart) segment.offset.push_back(round(offset * o.scale));
      quantize(profile_.activation, shape.qk.rule.integers(), scaled, row);
      shape.contraction.gather(row, profile_.activation.block(), segment.q.a.data() + r * segment.q.terms,
                               segment.q.exponents.data() + r * segment.q.groups);
    }
  }
  return segments;
}

void Executor::run(const op::Attention& o) {
  const HeadShape& shape = heads_.at(o.layer);
  const LaneMap& out_map = map(o.out);
  std::vector<Sight> sights;
  for (const SequenceStep& step : batch_) sights.emplace_back(step.plan, shape.key_tile, o.window);
  const std::int64_t tasks = static_cast<std::int64_t>(batch_.size()) * o.heads;
  const auto chunk = to_size(layout_.chunk_tiles);
  parallel(pool_, tasks, [&](std::int64_t task, int) {
    const auto sequence = to_size(task / o.heads);
    const std::int64_t head = task % o.heads, first = first_rows_[sequence], rows = first_rows_[sequence + 1] - first;
    if (rows == 0) return;
    const std::vector<QuerySegment> segments = query_segments(o, sequence, head);
    const auto& cache = static_cast<const LaneKvCache&>(*batch_[sequence].cache);
    const std::span<const std::int64_t> tiles = sights[sequence].tiles;
    HeadAttention attention(o, shape, profile_.vector, cache, sights[sequence], rows, segments);
    for (std::size_t begin = 0; begin < tiles.size(); begin += chunk)
      attention.add(head / (o.heads / o.kv_heads), tiles.subspan(begin, std::min(chunk, tiles.size() - begin)));
    // Outputs have no interleaved pairs: a head's lanes are its dimensions.
    for (std::int64_t r = 0; r < rows; ++r) attention.result(r, value(o.out).row(first + r) + out_map.first_lane(head));
  });
}

}  // namespace dllm::npu::accuracy
