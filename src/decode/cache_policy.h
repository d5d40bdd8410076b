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
  bool window_changed = true;     ///< first pass of this window's unit (WindowStep::unit)
  /// The rows whose predictions this step wants, ascending. Most are a part of `needed`; the loop adds whichever of
  /// them the decision lacks.
  std::span<const Position> wanted{};
  const LatencyTable* latency = nullptr;  ///< what steps cost on this machine; nullptr: unknown
};

struct CachePolicyConfig {
  /// A committed row that was forwarded with its token this often is not forwarded again in its window (dual); finished
  /// attention blocks inside the window are left alone (block-causal, without loss). 0: neither.
  std::int32_t settle = 0;
  /// Full passes of prefix, dual and vicinity: at the first pass of every unit of the window (Fast-dLLM), or at the
  /// first of the answer only (llada.cpp, dllm-reference D.7 A16); and besides whenever the last is `interval` passes
  /// ago (also delayed; 0: never).
  bool refresh_on_unit = true;
  std::int32_t refresh_interval = 0;
  Position prefix_look = 16;           ///< vicinity: rows in front of the window
  Position after_look = 16;            ///< vicinity: rows behind it
  std::int32_t warmup = 4;             ///< vicinity: full passes before anything is cached
  std::int32_t delay = 1;              ///< delayed: passes with its token before a row is kept
  std::int32_t prompt_interval = 50;   ///< partial: passes between those that recompute the prompt
  std::int32_t response_interval = 7;  ///< partial: passes between those that recompute the whole answer
  double refresh_share = 0.25;         ///< partial: share of the answer recomputed in the passes between
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

/// Positions of a range whose kept row was made from another token than the canvas shows, or is not there.
std::vector<Position> stale_rows(const CacheContext& context, PositionRange range);

/// `rows` of a window together with the stale rows in front of it: positions that left a sliding window before they
/// were forwarded with their token. Behind a window that stands still there are none.
std::vector<Position> with_stale_prefix(const CacheContext& context, std::vector<Position> rows);

/// When a policy makes a full pass. Called once per pass.
class RefreshClock {
 public:
  explicit RefreshClock(const CachePolicyConfig& config)
      : on_unit_(config.refresh_on_unit), interval_(config.refresh_interval) {}

  bool due(const CacheContext& context);

 private:
  bool on_unit_;
  std::int32_t interval_;
  std::int32_t age_ = -1;  ///< passes since the last full one; -1: none yet
};

}  // namespace dllm
