#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "graph/graph.h"
#include "graph/split.h"

namespace dllm::cpu {

class CpuKvCache;

/// Attention of a batch: visible ranges become kernel arguments, queries become tasks. A task is some queries (rows and
/// the heads that share a kv head) of one sequence against one kv head. A query's result does not depend on its task,
/// so the split follows the number of threads.
class AttentionRunner {
 public:
  /// `bf16`: the products of the arithmetic `bf16` (docs/design/arithmetic.md), in the fastest form of the set.
  AttentionRunner(const KernelSet& kernels, ThreadPool& pool, bool bf16 = false)
      : kernels_(kernels), pool_(pool), form_(bf16 ? bf16_attention(kernels) : AttentionForm::kF32) {}

  bool bf16() const { return form_ != AttentionForm::kF32; }

  /// Takes the plans of a step; its caches must outlive run(). Throws std::bad_alloc, as run() does.
  /// Of the rows of the batch, run() computes `own`.
  void begin(std::span<const SequenceStep> batch, UnitRange own = {0, std::numeric_limits<std::int64_t>::max()});
  /// q and out: [rows of the batch][heads][head_dim].
  void run(const op::Attention& o, const float* q, float* out);

 private:
  struct Sequence {
    std::size_t first_cache, caches;  ///< the step's own, then those that it is a branch of
    std::int64_t first_row;
    std::size_t first_view, views;  ///< of views_
    std::int64_t keys;              ///< visible to at least one row
    const StepPlan* plan;
  };
  struct Task {
    std::size_t sequence;
    std::int64_t kv_head, begin, end;
    std::size_t first_range, ranges;
  };
  /// Rows of a sequence that see the same ranges.
  struct Segment {
    std::size_t sequence;
    std::int64_t begin, end;  ///< rows
    std::size_t first_range, ranges;
  };

  void add_views(const StepPlan& plan, const KvCache& cache);
  void add_view(std::int64_t begin, std::int64_t end, std::span<const PositionRange> visible, const KvCache& cache);
  void add_limits(const StepPlan& plan);
  void add_ranges(std::span<const PositionRange> visible, const KvCache& cache);
  void cut(const op::Attention& o);
  void find_segments(std::int32_t window, op::RowView view);
  void add_segment(Segment segment, std::int64_t floor);
  void attend(const op::Attention& o, const Task& task, const float* q, float* out, int worker);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  AttentionForm form_;
  UnitRange own_;
  std::vector<Sequence> sequences_;
  std::vector<const CpuKvCache*> caches_;  ///< of all sequences
  std::vector<KeyRange> ranges_;           ///< of all views, then of the segments of a window
  std::size_t whole_ranges_ = 0;           ///< those of the views
  std::vector<Segment> views_;             ///< of all sequences: every row is in one, whatever the window
  std::vector<Segment> segments_;
  std::vector<std::int32_t> limits_;         ///< by row of the batch: positions from here on are causally masked
  std::vector<std::int32_t> causal_limits_;  ///< the same for op::RowView::kCausal
  std::vector<Task> tasks_;
  Buffer scratch_;
};

}  // namespace dllm::cpu
