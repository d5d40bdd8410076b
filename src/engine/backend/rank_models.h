#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "engine/backend/rank_parts.h"
#include "engine/backends.h"
#include "graph/split.h"
#include "model/model.h"
#include "ranks/communicator.h"

namespace dllm {

/// What ranks run together.
struct RankModels {
  std::shared_ptr<const Model> model;     ///< null: this rank has none, and gets its part
  std::shared_ptr<const Model> drafts{};  ///< of --draft-model: a copy of the model, or a drafter; null: none
  /// Whether these were loaded with rank 0's options. A worker gets adapters and what drafts from rank 0, and opens
  /// `path`, its file, again.
  bool complete = false;
  std::string path{};
};

/// What the option --draft-model names; null: nothing. Errors: those of open_drafter() and open_copy().
Expected<std::shared_ptr<const Model>> open_drafts(const Model& model, const LoadOptions& options, const Log& log);

/// Fingerprints of adapters and of what drafts, as ranks with the same options have them.
std::string beside_fingerprint(const RankModels& models);

/// All ranks call it together: those that lack something get it from rank 0, or find it in `folder`. Errors: the same
/// on all ranks; those of share_weights() and share_adapters().
Expected<RankModels> share_models(RankModels own, Communicator& ranks, const Expected<SplitKind>& split,
                                  const PartFolder& folder, const SendWatch& watch = {});

/// This rank's part of all of them. The result must not outlive `models`. All ranks call it together. Errors: the same
/// on all ranks; those of make_part().
Expected<RunningBackend> make_parts(const RankModels& models, CpuOptions options, Communicator& ranks,
                                    const Expected<SplitKind>& split);

}  // namespace dllm
