#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/latency_table.h"
#include "backend/step_plan.h"
#include "decode/canvas.h"
#include "model/model_desc.h"

namespace dllm {

/// What a cache policy sees before a step.
struct CacheContext {
  const Canvas& canvas;
  const KvCache& cache;
  /// Rows that predict the window's positions, [begin - shift, end): they must be in the plan.
  PositionRange needed;
  /// Rows at or behind it are not forwarded: the canvas's end for full attention, the window's end for block-causal
  /// models, the first unknown position for models without a mask token.
  Position horizon = 0;
  std::int32_t causal_block = 0;  ///< see StepPlan::causal_block
  bool window_changed = true;     ///< first step of this window
  /// The rows whose predictions this step wants, ascending, a part of `needed`: they must be in the plan.
  std::span<const Position> wanted{};
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine; nullptr: unknown
};

struct CachePolicyConfig {
  /// A committed row that was forwarded with its token this often is not forwarded again in its window (dual); finished
  /// attention blocks inside the window are left alone (block-causal, without loss). 0: neither.
  std::int32_t settle = 0;
};

/// What is recomputed and what is taken from the cache.
struct CacheDecision {
  std::vector<Position> rows;          ///< ascending
  std::vector<PositionRange> visible;  ///< see StepPlan::visible
};

/// Which rows must be recomputed for a window at a step (dInfer: KV-cache manager). Stateless between requests; the
/// loop runs one object per sequence.
class CachePolicy {
 public:
  virtual ~CachePolicy() = default;
  virtual CacheDecision decide(const CacheContext& context) = 0;
};

/// The positions of a range, for rows.
std::vector<Position> positions(PositionRange range);

}  // namespace dllm
