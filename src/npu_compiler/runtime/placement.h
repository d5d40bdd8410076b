#pragma once

#include <cstdint>
#include <vector>

#include "npu_compiler/runtime/memory_plan.h"
#include "npu_compiler/runtime/staging.h"

namespace dllm::npu {

/// Room for resident tensors.
struct ResidentRoom {
  std::int64_t bytes = 0;          ///< of all their mappings
  std::int64_t mapping_bytes = 0;  ///< of the largest; 0: any
  std::int64_t mappings = 0;       ///< maximum; 0: any number
  std::int64_t page_bytes = 4096;
  std::int64_t alignment = 128;  ///< of a tensor in its mapping
};

/// Packs tensors in order: starts a new mapping when the next tensor would make the current one too large.
struct PackedMappings {
  struct Place {
    std::int32_t mapping;
    std::int64_t offset;  ///< in it
  };
  std::vector<std::int64_t> bytes;  ///< of each mapping, whole pages
  std::vector<Place> places;        ///< by index into the list of tensors
  std::int64_t total = 0;           ///< of `bytes`
  bool fits = false;                ///< into the room
};
PackedMappings pack_mappings(const MemoryProgram& program, const std::vector<std::int32_t>& tensors,
                             const ResidentRoom& room);

/// Chooses which lasting tensors are staged, by tensor: the shortest run found, and among equals the least transfer.
/// For up to ten tensors every placement is tried; for more, greedy by time saved per byte and an even spread, each
/// improved by exchanging tensors until no exchange helps. Errors: kResource if those that cannot be staged do not
/// fit.
Expected<std::vector<char>> choose_staged(const MemoryProgram& program, const std::vector<std::int32_t>& lasting,
                                          const StagingTimeline& timeline, const ResidentRoom& room);

/// Where that search begins: small tensors are resident, of the others the same share of the bytes is staged all over
/// the program. Does not depend on times. Errors: as choose_staged().
Expected<std::vector<char>> spread_staged(const MemoryProgram& program, const std::vector<std::int32_t>& lasting,
                                          const StagingTimeline& timeline, const ResidentRoom& room);

}  // namespace dllm::npu
