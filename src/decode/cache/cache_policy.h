#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/latency_table.h"
#include "backend/step_plan.h"
#include "base/to_size.h"
#include "decode/canvas.h"
#include "decode/decoder/decoder.h"
#include "model/model_desc.h"

namespace dllm {

template <class T>
struct OptionRow;
struct MethodTraits;

/// The input of a cache policy before a step.
struct CacheContext {
  const Canvas& canvas;
  const KvCache& cache;
  /// Rows that predict the window's positions, [begin - shift, end): they must be in the plan.
  PositionRange needed;
  /// Rows from here on are not forwarded: the canvas's end for full attention, the window's end for block-causal
  /// models, the first unknown position for models without a mask token.
  Position horizon = 0;
  std::int32_t causal_block = 0;  ///< see StepPlan::causal_block
  bool window_changed = true;     ///< first pass of this window's unit (WindowStep::unit)
  /// The rows whose predictions this step wants, ascending. Most are part of `needed`; the loop adds those that are
  /// missing from the policy's decision.
  std::span<const Position> wanted{};
  const LatencyTable* latency = nullptr;  ///< cost of steps on this machine; nullptr: unknown
  /// What the last pass predicted, by ascending position, without `queried` and `top`; empty before the first pass. A
  /// policy that reads it declares asks_predictions (MethodTraits).
  std::span<const Candidate> predicted{};
  /// By position: see age(). Empty before the first pass.
  std::span<const std::int32_t> ages{};

  /// Passes made since the one that committed or changed the token: 0 is the last pass; -1: a mask, or the prompt.
  std::int32_t age(Position position) const { return ages.empty() ? -1 : ages[to_size(position)]; }
};

/// Options of every policy that keeps rows.
struct KeepingOptions {
  /// Shifted models: the settled row before the window predicts the window's first position. It is forwarded in the
  /// window's first pass only, and its prediction is kept.
  bool keep_front = false;
};
std::vector<OptionRow<KeepingOptions>> keeping_rows();

/// Options of policies with periodic full passes.
struct IntervalOptions : KeepingOptions {
  std::optional<std::int32_t> refresh_interval;  ///< passes between the starts of full passes; absent: no further ones
};
std::vector<OptionRow<IntervalOptions>> interval_rows();

/// ... and at the first pass of every unit of the window (Fast-dLLM), or of the answer only (llada.cpp).
struct RefreshOptions : IntervalOptions {
  enum class When { kBlock, kOnce };
  When refresh = When::kBlock;
};
std::vector<OptionRow<RefreshOptions>> refresh_rows();
/// Of the policies that read them.
MethodTraits refill_traits(const RefreshOptions& options);

/// Which rows are recomputed, and which are read from the cache.
struct CacheDecision {
  std::vector<Position> rows;          ///< ascending
  std::vector<PositionRange> visible;  ///< see StepPlan::visible
  /// A full pass that fills the cache for the passes after it. dInfer's loop makes the next one at once.
  bool fills = false;
};

/// Which rows must be recomputed for a window in a step (dInfer: KV-cache manager). Stateless between requests; the
/// loop uses one object per sequence.
class CachePolicy {
 public:
  explicit CachePolicy(const KeepingOptions& options = {}) : keeps_front_(options.keep_front) {}
  virtual ~CachePolicy() = default;
  virtual CacheDecision decide(const CacheContext& context) = 0;
  /// A copy, which is asked what a pass that may never come would compute. nullptr: nobody can ask that, and the loop
  /// guesses no passes (Decoder::guesses()).
  virtual std::unique_ptr<CachePolicy> clone() const { return nullptr; }
  /// KeepingOptions::keep_front, which the loop implements.
  bool keeps_front() const { return keeps_front_; }

 private:
  bool keeps_front_;
};

/// The positions of a range.
std::vector<Position> positions(PositionRange range);

/// Positions of a range whose K/V are missing or were computed from another token than the canvas shows.
std::vector<Position> stale_rows(const CacheContext& context, PositionRange range);

/// The rows of a window and the stale rows before it: positions that left a sliding window before they were forwarded
/// with their token. A window that does not slide has none.
std::vector<Position> with_stale_prefix(const CacheContext& context, std::vector<Position> rows);

/// Decides when a policy makes a full pass. Called once per pass.
class RefreshClock {
 public:
  explicit RefreshClock(const RefreshOptions& options)
      : on_unit_(options.refresh == RefreshOptions::When::kBlock), interval_(options.refresh_interval.value_or(0)) {}

  bool due(const CacheContext& context);

 private:
  bool on_unit_;
  std::int32_t interval_;  ///< 0: none
  std::int32_t age_ = -1;  ///< passes since the last full one; -1: none yet
};

}  // namespace dllm
