#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/unrolling.h"
#include "base/thread_pool.h"
#include "cpu/score_head.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "vulkan/buffer.h"
#include "vulkan/most_unrolled.h"

namespace dllm::vulkan {

/// What passes in a row may be about: sequences, scored rows of all of them, rules and stop tokens of one.
inline constexpr std::size_t kMostUnrolledSequences = 64, kMostUnrolledRows = 1024, kMostUnrolledRules = 16,
                             kMostUnrolledStops = 8;

/// As shaders/unroll.glsl has them.
struct UnrollState {
  std::uint32_t pass = 0, passes = 1, halted = 0, ran = 0, sequences = 0, rows = 0, launches = 0, unused = 0;
};
struct UnrollSequence {
  std::int32_t first = 0, count = 0;
  std::uint32_t by_counts = 0;
  std::int32_t first_stop = 0;
  double threshold = 0, tie = 0;
  std::uint32_t rules = 0, counted = 0, stops = 0, unused = 0;
  std::uint32_t stop[kMostUnrolledStops] = {};
  std::uint32_t counts[kMostUnrolled] = {};
};
struct UnrollRow {
  std::int32_t sequence = -1, target = -1, position = 0;
  std::uint32_t open = 0;
  std::int32_t chosen = -1;
  std::uint32_t unused[3] = {};
};
/// Bytes of a row's prediction.
inline constexpr std::int64_t kCandidateBytes = 16;
static_assert(sizeof(UnrollState) == 32 && sizeof(UnrollSequence) == 144 && sizeof(UnrollRow) == 32);

/// What a backend needs for passes in a row.
struct Unrolling {
  std::int32_t passes = 1;     ///< the most
  std::vector<Buffer> tables;  ///< of each op::Embed that reads tokens: [vocabulary][width] as the CPU would look it up
  bool on() const { return passes > 1; }
};

/// Where a recording has what its last shaders read.
struct UnrollPlaces {
  VkDeviceAddress state = 0, sequences = 0, rows = 0;
  VkDeviceAddress counts = 0;  ///< what the pass begins with, before a card's copy of it
};

/// What the rules of a batch's sequences say, for the device.
struct UnrollBatch {
  std::int32_t passes = 1;
  std::vector<CommitRule> rules{};  ///< of each step; none: one pass
};

/// How many passes the device may make in a row for a step with this rule: 1 where the next one's rows do not follow
/// from the rule. `needs`: of its scored rows.
std::int32_t passes_of(const SequenceStep& step, const CommitRule& rule, std::span<const cpu::HeadRow> needs);

/// Passes in a row for a batch; `rules`: what its caches were told. `scored`: of all steps, in their order. One pass if
/// one of them is not foreseen.
UnrollBatch plan_unrolling(std::span<const SequenceStep> batch, std::span<const std::optional<CommitRule>> rules,
                           std::span<const cpu::HeadRow> scored, std::int32_t most);

/// Errors: kUnsupported (rows of the model do not come from tokens alone).
Expected<void> check_embeddings(const Graph& graph);

/// Reads the embeddings of all tokens, which were checked, to the device. Throws std::bad_alloc. Errors: kResource.
Expected<std::vector<Buffer>> embedding_tables(const std::shared_ptr<Device>& device, const Graph& graph,
                                               const Weights& weights, ThreadPool& pool);

/// Writes the sequences and scored rows of a batch. Both have room for it.
void fill_unrolling(std::span<const SequenceStep> batch, const UnrollBatch& unrolled, UnrollSequence* sequences,
                    UnrollRow* rows);

}  // namespace dllm::vulkan
