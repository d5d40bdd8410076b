#pragma once

#include "npu_compiler/compiler/step.h"

// The work of one attention operator, before any instruction is written.

namespace dllm::npu {

/// HBM address registers of the chunk that attention reads.
inline constexpr std::uint32_t kKAddress = 5, kVAddress = 6;

/// Rows of a sequence that see the same keys: [first, first + count).
struct RowRun {
  std::int64_t first = 0, count = 0;
  /// By tile of the chunk: index into SequenceTiles::patterns, or kAll.
  std::vector<std::int32_t> patterns;
};
inline constexpr std::int32_t kAllVisible = -1;

/// Keys are tiles of HLEN positions from position 0, so that a row's result does not depend on the rest of the batch.
/// Tiles that no row sees are left out.
struct SequenceTiles {
  std::vector<std::int64_t> tiles;          ///< tile numbers, ascending
  std::vector<std::vector<bool>> patterns;  ///< [HLEN], which keys of a tile are visible
  std::vector<RowRun> runs;                 ///< patterns by index into tiles
};
/// `window`: of op::Attention; 0: none.
SequenceTiles plan_tiles(const SequenceSpec& sequence, std::int64_t hlen, std::int64_t window = 0);
/// Whether the rows of both see the same keys.
bool sees_alike(const SequenceSpec& a, const SequenceSpec& b);

/// The lanes of K and V that the heads of one group of MLEN query lanes need.
struct LaneGroup {
  std::int64_t kv_group = 0;  ///< group of MLEN lanes of K
  std::int64_t kv_lane = 0;   ///< first lane within it
  std::int64_t sharing = 1;   ///< consecutive heads on one KV head: bmm_group
};
/// By group of MLEN lanes of the queries, slab after slab.
std::vector<LaneGroup> plan_lanes(const LaneMap& q, const LaneMap& kv, const MachineConfig& machine);

}  // namespace dllm::npu
