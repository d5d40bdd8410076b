#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace dllm::npu {

/// Columns of an activation -> lanes. Queries and keys store pairs of interleaved RoPE (2j, 2j + 1) as halves (j, j +
/// dims/2), which leaves scores unchanged and lets one rotation of the lanes serve both. Plain values are unchanged.
/// Values made of heads give every head a slot of HLEN lanes, and every KV head a power of two of query slots (28 query
/// heads on 4 KV heads: 4 x 8 slots), because M_BTMM works on MLEN / HLEN heads of which equal numbers share a matrix.
/// Lanes without a column are zero.
struct LaneMap {
  std::int64_t width = 0;     ///< columns
  std::int64_t head_dim = 0;  ///< 0: plain
  std::int64_t group = 1;     ///< heads per KV head
  std::int64_t slots = 1;     ///< slots per KV head
  std::int64_t hlen = 0;
  std::int64_t interleaved = 0;  ///< columns of a head that are pairs of interleaved RoPE

  bool heads() const { return head_dim != 0; }
  std::int64_t slot_of(std::int64_t head) const { return head / group * slots + head % group; }
  std::int64_t slot_count() const { return width / head_dim / group * slots; }
  std::int64_t lane(std::int64_t column) const {
    return heads() ? first_lane(column / head_dim) + lane_in_head(column % head_dim) : column;
  }
  std::int64_t first_lane(std::int64_t head) const { return slot_of(head) * hlen; }
  std::int64_t lane_in_head(std::int64_t d) const { return d < interleaved ? d / 2 + d % 2 * (interleaved / 2) : d; }
  /// One past the last lane that may hold a column.
  std::int64_t used() const { return heads() ? slot_count() * hlen : width; }
  friend bool operator==(const LaneMap&, const LaneMap&) = default;
};

/// By value, on an array of `mlen` lanes with slots of `hlen`: what attention reads determines how its producers write.
/// Whether programs have these lanes is the compiler's to check (compiler/layout.h).
std::vector<LaneMap> assign_lanes(const Graph& graph, std::int64_t mlen, std::int64_t hlen);

/// How RoPE rotates lanes.
struct RopeForm {
  std::int64_t segment = 0;  ///< lanes that rotate together: a head's slot of HLEN, or a row of a longer head
  std::int64_t slabs = 1;    ///< of a head that is longer than HLEN; unless `halves`, only the first one rotates
  /// The halves of a head are separate slabs (VLEN is half of the rotated columns): out_low = low cos - high sin,
  /// out_high = high cos + low sin, no rotation; the tables hold cos and sin of VLEN pairs.
  bool halves = false;
  int tables = 2;  ///< cos, sin; or 3: sines of two directions
};
RopeForm rope_form(const op::Rope& rope, std::int64_t hlen, std::int64_t vlen);

/// Bytes of the values that wait in HBM before operator `at`, as they are in vector SRAM: slabs of `vlen` lanes, rows
/// in blocks of `blen`. `lanes`: by value.
std::int64_t waiting_bytes(const Graph& graph, const std::vector<LaneMap>& lanes, std::int64_t blen, std::int64_t vlen,
                           std::size_t at);
/// The same for waiting_values() that are known.
std::int64_t waiting_bytes(const Graph& graph, const std::vector<LaneMap>& lanes, std::int64_t blen, std::int64_t vlen,
                           std::span<const ValueId> waiting);

}  // namespace dllm::npu
