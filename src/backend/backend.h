#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/kv_cache.h"
#include "backend/scores.h"
#include "backend/step_plan.h"
#include "dllm/error.h"
#include "model/model_desc.h"

namespace dllm {

/// One sequence's part of a batch.
struct SequenceStep {
  KvCache* cache = nullptr;  ///< made by the same backend; each step of a batch has its own
  StepPlan plan;
  ScoreRequest request;
  std::optional<Guidance> guidance;
};

/// Runs step plans. A sequence's results do not depend on the others in its batch or on the number of threads, bit for
/// bit. One forward at a time per backend; several backends may share a model.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const ModelDesc& desc() const = 0;
  /// Whether plans may have shadow rows. Methods that need them are refused where this is false.
  virtual bool runs_shadows() const { return false; }
  /// Whether a row may read a mixture in place of its token (RowMixture::instead). Methods that need it are refused
  /// where this is false.
  virtual bool runs_soft_tokens() const { return false; }
  /// Whether caches may be branches of others (KvCache::follow()). A batch may then run a cache and its branches, each
  /// after what it follows, and at most kMostBranchDepth deep. Methods that need them are refused where this is false.
  virtual bool runs_branches() const { return false; }
  static constexpr std::int32_t kMostBranchDepth = 16;
  /// Whether plans may have given embeddings and groups. Prompts with images are refused where this is false.
  virtual bool takes_embeddings() const { return false; }
  /// Whether plans may name positions that come before all others (StepPlan::lead). Models that need them are refused
  /// where this is false.
  virtual bool runs_lead() const { return false; }
  /// Cache for positions [0, capacity). Errors: kResource.
  virtual Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) = 0;
  /// One forward pass; Scores per sequence. Plans are trusted (the loop builds them): a malformed one is a bug.
  /// Errors: kResource.
  virtual Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) = 0;
};

}  // namespace dllm
