#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/step_plan.h"
#include "decode/cache/cache_policy.h"
#include "decode/loop/denoise_options.h"
#include "decode/loop/denoise_pass.h"
#include "model/model_desc.h"

namespace dllm {

/// What a plan depends on.
struct PlanState {
  const Canvas& canvas;
  const KvCache& cache;
  PositionRange window;
  Position ahead = 0;                      ///< end of the drafted positions after the window
  Position grown = 0;                      ///< end of what SuffixPolicy::kGrow shows
  bool fresh = false;                      ///< caches start anew
  bool spare_front = false;                ///< the row before the window is not needed (KeptFront)
  std::span<const Candidate> predicted{};  ///< see CacheContext
  std::span<const std::int32_t> ages{};    ///< see CacheContext
};

/// Chooses the rows of a pass: those that the cache policy refreshes, those that predict wanted positions, and those
/// that become visible for the first time.
class PassPlanner {
 public:
  /// Borrows the description; `options`: suffix, latency, compat and smooth are read.
  PassPlanner(const ModelDesc& desc, std::unique_ptr<CachePolicy> policy, const DenoiseOptions& options);

  /// A planner that may be asked about passes which may never come; nullopt: the policy does not permit it.
  std::optional<PassPlanner> rehearsal() const;

  /// Rows show the canvas's tokens. Fills pass.score_of_wanted.
  StepPlan plan(const PlanState& state, DenoisePass& pass) const;

  /// Has the plan's rows score `positions`, ascending, of which `predicted` are wanted by the pass; the others it also
  /// scores. Appends to plan.scored, pass.score_of_wanted and pass.also_scored. Precondition: the plan has their rows.
  void ask_rows(std::span<const Position> positions, std::span<const Position> predicted, StepPlan& plan,
                DenoisePass& pass) const;

  /// End of what the model sees in a pass whose window and drafts end at `end`; `grown`: see PlanState.
  Position horizon(const Canvas& canvas, Position end, Position grown) const;

  /// The row that predicts a position. Position 0 has no row before it and predicts itself (Dream).
  Position source_of(Position position) const;
  bool keeps_front() const { return policy_->keeps_front(); }
  const ModelDesc& desc() const { return desc_; }

 private:
  PassPlanner(const PassPlanner& other, std::unique_ptr<CachePolicy> policy)
      : desc_(other.desc_),
        policy_(std::move(policy)),
        suffix_(other.suffix_),
        latency_(other.latency_),
        score_all_masks_(other.score_all_masks_) {}

  const ModelDesc& desc_;
  std::unique_ptr<CachePolicy> policy_;
  Suffix suffix_;
  std::vector<Position> also_scored(const PlanState& state, std::span<const Position> rows,
                                    std::span<const Position> predicted) const;

  const LatencyTable* latency_;
  bool score_all_masks_;
};

}  // namespace dllm
