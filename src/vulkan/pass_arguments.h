#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/branch_rows.h"
#include "cpu/rope_table.h"
#include "cpu/score_head.h"
#include "dllm/error.h"
#include "graph/graph.h"
#include "model/weights.h"
#include "vulkan/buffer.h"
#include "vulkan/commands.h"
#include "vulkan/operators.h"
#include "vulkan/unroll_arguments.h"

namespace dllm::vulkan {

/// How much a pass is about, or how much a recording has room for.
struct PassSize {
  std::int64_t rows = 0;
  std::int64_t scored = 0;
  std::int64_t visible = 0;  ///< positions, over all sequences and shadow rows
  std::int64_t kept = 0;     ///< scored rows whose logits this processor reads
  std::int64_t stored = 0;   ///< rows of K and V, in all caches

  bool holds(const PassSize& other) const {
    return rows >= other.rows && scored >= other.scored && visible >= other.visible && kept >= other.kept &&
           stored >= other.stored;
  }
};

/// The scored rows of a batch, as cpu::ScoreHead arranges them.
struct ScoredRows {
  std::span<const std::int64_t> gather;  ///< rows of the batch
  std::span<const cpu::HeadRow> needs;
};

/// What the host tells a recorded pass, in memory that the device reads: counts, workgroups, rows with their caches,
/// visible positions, angles, embeddings, hidden states. Recorded commands contain addresses of these and no values, so
/// that they serve every pass that fits. A card copies all but the last two when a pass begins: its operators read
/// these numbers over and over, and each read from this processor's memory takes a microsecond or more.
class PassArguments {
 public:
  /// `launches`: the most dispatches. `unrolls`: others may follow a pass. The graph must outlive it. Errors:
  /// kResource.
  static Expected<PassArguments> make(const std::shared_ptr<Device>& device, const Graph& graph, const Weights& weights,
                                      const PassSize& room, std::int64_t launches, bool unrolls = false);

  VkDeviceAddress count(bool scored) const { return at(scored ? 4 : 0); }
  VkDeviceAddress rows() const { return at(rows_); }
  VkDeviceAddress stores() const { return at(stores_); }
  VkDeviceAddress gather() const { return at(gather_); }
  /// For the head: what is needed of each scored row, and which ones are kept.
  VkDeviceAddress reduce_rows() const { return at(reduce_); }
  VkDeviceAddress asked() const { return at(asked_); }
  VkDeviceAddress kept() const { return at(kept_); }
  VkDeviceAddress visible() const { return at(visible_); }
  VkDeviceAddress tiles() const { return at(tiles_); }
  /// [rows][dims / 2] for an operator of the graph.
  VkDeviceAddress cos(const op::Rope& o) const;
  VkDeviceAddress sin(const op::Rope& o) const;
  /// [rows][width] of what this processor gives for a value: embeddings, or hidden states.
  VkDeviceAddress given(ValueId value) const;
  /// Of a recording that others may follow, in this processor's memory: the device changes what the next pass reads.
  UnrollPlaces unrolling() const;
  void fill_unrolling(std::span<const SequenceStep> batch, const UnrollBatch& unrolled, std::int64_t launches);
  std::int32_t passes_run() const { return static_cast<std::int32_t>(state()->ran); }
  /// Recorded first.
  void record(Commands& commands) const;
  /// What dispatches read.
  const Buffer& memory() const { return own_.bytes() > 0 ? own_ : memory_; }
  std::int64_t bytes() const { return memory_.bytes() + own_.bytes(); }
  /// Where the workgroups of a dispatch are.
  static std::int64_t groups_offset(std::int64_t launch) { return 64 + 12 * launch; }

  /// Writes everything but workgroups, and returns size_of_pass(). Throws std::bad_alloc.
  PassSize fill(std::span<const SequenceStep> batch, const ScoredRows& scored, const Weights& weights,
                const BranchRows& shared = {});
  void set_groups(std::int64_t launch, const GroupCounts& groups) {
    *reinterpret_cast<GroupCounts*>(memory_.data() + groups_offset(launch)) = groups;
  }

 private:
  struct Turn {
    const op::Rope* rope = nullptr;
    cpu::RopeTable table;
    std::int64_t cos = 0, sin = 0;

    bool serves(const op::Rope& o) const { return rope->turns_like(o) && rope->factors == o.factors; }
  };
  /// Of op::Embed or op::HiddenIn, what a row gets from this processor.
  struct Lookup {
    const Op* op = nullptr;
    ValueId out = kNoId;
    std::int64_t width = 0;
    std::int64_t offset = 0;
  };

  VkDeviceAddress at(std::int64_t offset) const { return memory().address() + static_cast<VkDeviceAddress>(offset); }
  template <class T>
  T* to(std::int64_t offset) {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }
  const UnrollState* state() const { return reinterpret_cast<const UnrollState*>(memory_.data() + unroll_); }
  const Turn& turn(const op::Rope& o) const;
  void add_turn(const op::Rope& o, const Weights& weights);
  void fill_rows(std::span<const SequenceStep> batch);
  void fill_stores(std::span<const SequenceStep> batch, const BranchRows& shared);
  void fill_head(const ScoredRows& scored);
  void fill_lookups(std::span<const SequenceStep> batch, const Weights& weights);

  Buffer memory_;
  Buffer own_;  ///< the card's copy of what comes before the lookups
  std::int64_t rows_ = 0, stores_ = 0, gather_ = 0, visible_ = 0, tiles_ = 0, reduce_ = 0, asked_ = 0, kept_ = 0;
  std::int64_t unroll_ = 0;  ///< UnrollState, then sequences, then rows
  std::vector<Turn> turns_;
  std::vector<Lookup> lookups_;
};

/// The size of a batch's pass. `shared`: what its branches get of other caches.
PassSize size_of_pass(std::span<const SequenceStep> batch, const ScoredRows& scored, const BranchRows& shared = {});

}  // namespace dllm::vulkan
