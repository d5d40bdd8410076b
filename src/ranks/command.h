#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "dllm/error.h"

namespace dllm {

// What rank 0 asks of the others, in their order. Caches have numbers.

struct MakeCache {
  std::uint32_t cache = 0;
  Position capacity = 0;
};
struct DropCache {
  std::uint32_t cache = 0;
};
struct CopyRows {
  std::uint32_t from = 0, to = 0;
  PositionRange rows;
  Position at = 0;
};
/// KvCache::copy_rows().
struct CopyPositions {
  std::uint32_t from = 0, to = 0;
  std::vector<Position> positions;
};
/// KvCache::follow().
struct FollowCache {
  std::uint32_t cache = 0, parent = 0;
  std::vector<PlanRow> pending;
};
/// KvCache::adopt().
struct AdoptRows {
  std::uint32_t cache = 0, branch = 0;
};
/// One pass. SequenceStep::cache is null; `caches` has the numbers.
struct RunSteps {
  std::vector<std::uint32_t> caches;
  std::vector<SequenceStep> steps;
};
/// All ranks bring their RankTimes together.
struct Report {};
struct Leave {};

using Command =
    std::variant<MakeCache, DropCache, CopyRows, CopyPositions, FollowCache, AdoptRows, RunSteps, Report, Leave>;

std::vector<std::byte> encode_command(const Command& command);
/// The same for a batch that is not copied.
std::vector<std::byte> encode_steps(std::span<const std::uint32_t> caches, std::span<const SequenceStep> batch);

/// A message as a command. Everything that does not depend on the caches is checked: lengths, order, tokens below
/// `vocab`, numbers. Errors: kIo (it is none).
Expected<Command> decode_command(std::span<const std::byte> message, std::int64_t vocab);

/// Whether the step reads only positions that the cache has or gets, and stays within it.
bool fits_cache(const StepPlan& plan, const KvCache& cache);

/// Whether it is a step of Region::kDraft as a drafter of such blocks reads it: successive rows, the first of which is
/// known and not predicted. Other steps name a token in every row.
bool fits_drafter(const SequenceStep& step, Position block);

}  // namespace dllm
