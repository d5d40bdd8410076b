#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "npu_backend/accuracy/matrix.h"
#include "npu_backend/accuracy/smoothing.h"

namespace dllm::npu::accuracy {

/// How the heads of a layer's K and V are cut into terms.
struct HeadShape {
  std::int64_t kv_heads = 0, head_dim = 0;
  std::int64_t slot = 0;          ///< lanes from head to head
  std::int64_t key_tile = 0;      ///< keys whose scores are computed together
  std::int64_t keys_at_once = 0;  ///< of an instruction of P V
  ProductFormats qk, pv;
  Contraction contraction;  ///< of Q K^T, within a slot

  std::int64_t v_panels() const { return ceil_div(head_dim, kPanel); }
};

/// One side of a layer's cache: windows of integers, or floats.
struct Panels {
  std::vector<std::int16_t> narrow, exponents;
  std::vector<float> wide;

  void allocate(const WindowRule& rule, std::int64_t terms, std::int64_t groups);
  /// `count` terms from `term` on, `step` apart.
  void copy(const Panels& from, const WindowRule& rule, std::int64_t term, std::int64_t count, std::int64_t step);
  void put(const WindowRule& rule, std::int64_t at, float value) {
    if (rule.kind == WindowRule::Kind::kNarrow)
      narrow[static_cast<std::size_t>(at)] = static_cast<std::int16_t>(value);
    else
      wide[static_cast<std::size_t>(at)] = value;
  }
};

/// K and V of a sequence in the profile's formats. K is [kv_head][panel of 16 keys][lane][key], so that 16 scores are
/// computed together; V is [kv_head][panel of 16 dimensions][key][dimension]. Capacities are whole tiles: positions
/// that were never written are zeros, as in a machine's cleared memory.
///
/// With smoothing, rows that were written with the same centres and factors form a segment. Rows are stored with those
/// of the latest one.
class LaneKvCache final : public KvCache {
 public:
  LaneKvCache(Position capacity, const std::map<std::int32_t, HeadShape>& layers, const Smoothing& smoothing = {},
              VectorPrecision precision = VectorPrecision::kF32);

  struct Segment {
    std::vector<ChannelFactors> k, v;  ///< by KV head
  };
  /// Whether rows can be stored: the first ones begin a segment.
  bool has_segment(std::int32_t layer) const { return !layers_.at(layer).segments.empty(); }
  /// The following rows are stored with factors computed from these rows of lanes.
  void begin_segment(std::int32_t layer, const LaneRows& k, const LaneRows& v, std::int64_t first, std::int64_t end);
  /// The segments of smoothed caches. The last one is the latest.
  std::span<const Segment> segments(std::int32_t layer) const { return layers_.at(layer).segments; }
  /// Index into segments(); arbitrary for positions that were never written.
  std::int32_t segment_of(std::int32_t layer, std::int64_t position) const {
    return layers_.at(layer).segment_of[static_cast<std::size_t>(position)];
  }

  /// `k`, `v`: a row of lanes each, not quantized yet.
  void store(std::int32_t layer, Position position, std::span<const float> k, std::span<const float> v);
  /// Of a cache of the same shape, without smoothing.
  void copy_rows(const KvCache& from, std::span<const Position> positions) override;
  /// The same, without a record.
  void copy_values(const LaneKvCache& from, std::span<const Position> positions);
  /// Q K^T of keys [16 panel, ...): all fields except the rows.
  WindowProduct keys(std::int32_t layer, std::int64_t kv_head, std::int64_t panel) const;
  /// P V of 16 dimensions from key `first`: all fields except the rows and the ends of instructions.
  WindowProduct values(std::int32_t layer, std::int64_t kv_head, std::int64_t panel, std::int64_t first) const;
  const Smoothing& smoothing() const { return smoothing_; }
  const HeadShape& shape(std::int32_t layer) const { return layers_.at(layer).shape; }

  using KvCache::record;

 protected:
  bool take(const KvCache& branch, std::span<const PositionRange> rows) override;

 private:
  struct Layer {
    HeadShape shape;
    Panels k, v;
    std::vector<Segment> segments;
    std::vector<std::int32_t> segment_of;  ///< by position
  };
  static void drop_unused_segments(Layer& layer);

  Smoothing smoothing_;
  VectorPrecision precision_;
  std::int64_t positions_;  ///< whole tiles
  std::map<std::int32_t, Layer> layers_;
};

}  // namespace dllm::npu::accuracy
