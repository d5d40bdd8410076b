#pragma once

#include <vector>

#include "decode/denoise_step.h"
#include "decode/pass_planner.h"
#include "decode/reviser.h"
#include "decode/second_path.h"

namespace dllm {

/// What the loop does for its second path: launches the refreshes that a Reviser asks for while a pass is prepared, and
/// merges what they saw at the boundary between two steps.
class RefreshPath {
 public:
  /// `rules`: of every request of the sequence.
  RefreshPath(const SecondPathConfig& config, std::vector<TokenRule> rules);

  /// Starts a refresh during the pass being prepared, if nothing runs and the reviser wants one. `end`: of what exists
  /// for the model. Without a delay it is merged here; its edits and errors are those of the next take_early().
  void launch(const DecodeContext& context, Reviser& reviser, const PassPlanner& planner, Position end, Canvas& canvas,
              KvCache& cache, DenoiseCounters& counters);

  /// Edits that were merged since the last call, in front of the pass. Errors: those of the second path's pass.
  Expected<std::vector<Edit>> take_early();

  /// Whether a refresh is to be merged at the boundary before step `now`. `ending`: no pass will follow.
  bool due(std::int64_t now, bool ending) const { return path_.due(now) || (path_.busy() && ending); }

  /// What the second path has seen becomes part of the canvas; gives the edits that changed it.
  Expected<std::vector<Edit>> merge(const DecodeContext& context, Reviser& reviser, Canvas& canvas, KvCache& cache,
                                    DenoiseCounters& counters);

 private:
  SecondPath path_;
  std::vector<TokenRule> rules_;
  Expected<std::vector<Edit>> early_{std::vector<Edit>()};
};

}  // namespace dllm
