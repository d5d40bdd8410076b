#include "npu_backend/accuracy/kv_cache.h"
#include "base/to_size.h"

#include <algorithm>
#include <cassert>

namespace dllm::npu::accuracy {
namespace {

std::int64_t longest_tile(const std::map<std::int32_t, HeadShape>& layers) {
  std::int64_t tile = kPanel;
  for (const auto& [layer, shape] : layers) tile = std::max(tile, shape.key_tile);
  return tile;
}

void copy_exponents(const Panels& from, Panels& to, std::int64_t first, std::int64_t count, std::int64_t step) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = to_size(first + i * step);
    to.exponents[at] = from.exponents[at];
  }
}

}  // namespace

void Panels::allocate(const WindowRule& rule, std::int64_t terms, std::int64_t groups) {
  const auto count = to_size(terms);
  (rule.kind == WindowRule::Kind::kNarrow ? narrow.resize(count) : wide.resize(count));
  if (rule.integers()) exponents.assign(to_size(groups), kZeroExponent);
}

LaneKvCache::LaneKvCache(Position capacity, const std::map<std::int32_t, HeadShape>& layers, const Smoothing& smoothing,
                         VectorPrecision precision)
    : KvCache(capacity),
      smoothing_(smoothing),
      precision_(precision),
      positions_(round_up(std::max<std::int64_t>(1, capacity), longest_tile(layers))) {
  for (const auto& [layer, shape] : layers) {
    Layer& l = layers_[layer];
    l.shape = shape;
    l.segment_of.assign(to_size(positions_), 0);
    const std::int64_t cells = shape.kv_heads * positions_;
    l.k.allocate(shape.qk.rule, cells * shape.contraction.terms(), cells * shape.contraction.groups());
    l.v.allocate(shape.pv.rule, cells * shape.v_panels() * kPanel, cells * shape.v_panels() * kPanel);
  }
}

void LaneKvCache::drop_unused_segments(Layer& layer) {
  std::vector<std::int32_t> next(layer.segments.size(), -1);
  for (const std::int32_t s : layer.segment_of)
    if (s < static_cast<std::int32_t>(next.size())) next[to_size(s)] = 0;
  std::int32_t kept = 0;
  for (std::size_t s = 0; s < next.size(); ++s) {
    if (next[s] < 0) continue;
    if (to_size(kept) != s) layer.segments[to_size(kept)] = std::move(layer.segments[s]);
    next[s] = kept++;
  }
  layer.segments.resize(to_size(kept));
  for (std::int32_t& s : layer.segment_of)
    if (s < static_cast<std::int32_t>(next.size())) s = next[to_size(s)];
}

void LaneKvCache::begin_segment(std::int32_t layer, const LaneRows& k, const LaneRows& v, std::int64_t first,
                                std::int64_t end) {
  Layer& l = layers_.at(layer);
  drop_unused_segments(l);
  Segment segment;
  std::vector<const float*> rows(to_size(end - first));
  for (std::int64_t h = 0; h < l.shape.kv_heads; ++h) {
    const auto of = [&](const LaneRows& x, SmoothingCentre centre) {
      for (std::int64_t r = first; r < end; ++r) rows[to_size(r - first)] = x.row(r) + h * l.shape.slot;
      return channel_factors(centre, smoothing_, precision_, rows, l.shape.head_dim);
    };
    segment.k.push_back(of(k, smoothing_.keys));
    segment.v.push_back(of(v, smoothing_.values));
  }
  l.segments.push_back(std::move(segment));
}

void LaneKvCache::store(std::int32_t layer, Position position, std::span<const float> k, std::span<const float> v) {
  Layer& l = layers_.at(layer);
  const HeadShape& s = l.shape;
  thread_local Operand row;
  thread_local std::vector<float> terms;
  thread_local std::vector<std::int16_t> exponents;
  const std::int64_t n = s.contraction.terms(), groups = s.contraction.groups(), at = position % kPanel;
  terms.resize(to_size(n));
  exponents.resize(to_size(groups));
  Operand head;
  std::vector<float> smoothed_k, smoothed_v;
  if (!l.segments.empty()) {
    l.segment_of[to_size(position)] = static_cast<std::int32_t>(l.segments.size()) - 1;
    smoothed_k.assign(k.begin(), k.end()), smoothed_v.assign(v.begin(), v.end());
    for (std::int64_t h = 0; h < s.kv_heads; ++h) {
      const auto channels = [&](std::vector<float>& lanes) {
        return std::span<float>(lanes).subspan(to_size(h * s.slot), to_size(s.head_dim));
      };
      smooth(l.segments.back().k[to_size(h)], precision_, channels(smoothed_k));
      smooth(l.segments.back().v[to_size(h)], precision_, channels(smoothed_v));
    }
    k = smoothed_k, v = smoothed_v;
  }
  quantize(s.qk.w, s.qk.rule.integers(), k, row);
  const int k_block = s.qk.w.block();
  for (std::int64_t h = 0; h < s.kv_heads; ++h) {
    head.lanes.assign(row.lanes.begin() + h * s.slot, row.lanes.begin() + (h + 1) * s.slot);
    if (!row.exponents.empty())
      head.exponents.assign(row.exponents.begin() + h * s.slot / k_block,
                            row.exponents.begin() + (h + 1) * s.slot / k_block);
    s.contraction.gather(head, k_block, terms.data(), exponents.data());
    const std::int64_t panel = h * (positions_ / kPanel) + position / kPanel;
    for (std::int64_t i = 0; i < n; ++i) l.k.put(s.qk.rule, (panel * n + i) * kPanel + at, terms[to_size(i)]);
    if (!s.qk.rule.integers()) continue;
    for (std::int64_t g = 0; g < groups; ++g)
      l.k.exponents[to_size((panel * groups + g) * kPanel + at)] = exponents[to_size(g)];
  }
  quantize(s.pv.w, s.pv.rule.integers(), v, row);
  const int v_block = s.pv.w.block();
  for (std::int64_t h = 0; h < s.kv_heads; ++h)
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      const std::int64_t lane = h * s.slot + d;
      const std::int64_t cell = ((h * s.v_panels() + d / kPanel) * positions_ + position) * kPanel + d % kPanel;
      l.v.put(s.pv.rule, cell, row.lanes[to_size(lane)]);
      if (s.pv.rule.integers()) l.v.exponents[to_size(cell)] = row.exponents[to_size(lane / v_block)];
    }
}

void Panels::copy(const Panels& from, const WindowRule& rule, std::int64_t term, std::int64_t count,
                  std::int64_t step) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = to_size(term + i * step);
    if (rule.kind == WindowRule::Kind::kNarrow)
      narrow[at] = from.narrow[at];
    else
      wide[at] = from.wide[at];
  }
}

void LaneKvCache::copy_values(const LaneKvCache& from, std::span<const Position> positions) {
  assert(from.capacity() == capacity() && from.layers_.size() == layers_.size());
  for (auto& [index, to] : layers_) {
    const Layer& source = from.layers_.at(index);
    assert(source.segments.empty() && to.segments.empty());
    const HeadShape& s = to.shape;
    const std::int64_t n = s.contraction.terms(), groups = s.contraction.groups();
    for (const Position position : positions)
      for (std::int64_t h = 0; h < s.kv_heads; ++h) {
        const std::int64_t panel = h * (positions_ / kPanel) + position / kPanel, at = position % kPanel;
        to.k.copy(source.k, s.qk.rule, panel * n * kPanel + at, n, kPanel);
        if (s.qk.rule.integers()) copy_exponents(source.k, to.k, panel * groups * kPanel + at, groups, kPanel);
        for (std::int64_t v = 0; v < s.v_panels(); ++v) {
          const std::int64_t cell = ((h * s.v_panels() + v) * positions_ + position) * kPanel;
          to.v.copy(source.v, s.pv.rule, cell, kPanel, 1);
          if (s.pv.rule.integers()) copy_exponents(source.v, to.v, cell, kPanel, 1);
        }
      }
  }
}

bool LaneKvCache::take(const KvCache& branch, std::span<const PositionRange> rows) {
  std::vector<Position> positions;
  for (const PositionRange& range : rows)
    for (Position p = range.begin; p < range.end; ++p) positions.push_back(p);
  copy_values(static_cast<const LaneKvCache&>(branch), positions);
  return true;
}

void LaneKvCache::copy_rows(const KvCache& from, std::span<const Position> positions) {
  copy_values(static_cast<const LaneKvCache&>(from), positions);
  std::vector<PlanRow> rows;
  for (const Position p : positions) rows.push_back({p, from.token_of(p)});
  record(rows);
}

WindowProduct LaneKvCache::keys(std::int32_t layer, std::int64_t kv_head, std::int64_t panel) const {
  const Layer& l = layers_.at(layer);
  const Contraction& c = l.shape.contraction;
  const std::int64_t at = kv_head * (positions_ / kPanel) + panel;
  const bool narrow = l.shape.qk.rule.kind == WindowRule::Kind::kNarrow;
  WindowProduct p;
  p.narrow = narrow ? l.k.narrow.data() + at * c.terms() * kPanel : nullptr;
  p.wide = narrow ? nullptr : l.k.wide.data() + at * c.terms() * kPanel;
  p.w_exponents = l.k.exponents.data() + at * c.groups() * kPanel;
  p.group = c.group();
  p.ends = c.ends().data();
  p.instructions = static_cast<std::int64_t>(c.ends().size());
  return p;
}

WindowProduct LaneKvCache::values(std::int32_t layer, std::int64_t kv_head, std::int64_t panel,
                                  std::int64_t first) const {
  const Layer& l = layers_.at(layer);
  const std::int64_t at = ((kv_head * l.shape.v_panels() + panel) * positions_ + first) * kPanel;
  const bool narrow = l.shape.pv.rule.kind == WindowRule::Kind::kNarrow;
  WindowProduct p;
  p.narrow = narrow ? l.v.narrow.data() + at : nullptr;
  p.wide = narrow ? nullptr : l.v.wide.data() + at;
  p.w_exponents = l.v.exponents.data() + at;
  p.group = 1;
  return p;
}

}  // namespace dllm::npu::accuracy
