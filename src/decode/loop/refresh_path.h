#pragma once

#include <utility>
#include <vector>

#include "decode/decoder/reviser.h"
#include "decode/loop/denoise_step.h"
#include "decode/loop/pass_planner.h"
#include "decode/loop/second_path.h"

namespace dllm {

/// The loop's side of the second path: launches the refreshes that a Reviser wants while a pass is prepared, and merges
/// their results between two steps.
class RefreshPath {
 public:
  /// `rules`: of every request of the sequence.
  RefreshPath(const SecondPathConfig& config, std::vector<TokenRule> rules);

  /// Starts a refresh during the pass being prepared, if none is running and the reviser wants one. `end`: of what the
  /// model sees. With a delay of 0 it is merged here; the next take_early() returns its edits and errors.
  void launch(const DecodeContext& context, Reviser& reviser, const PassPlanner& planner, Position end, Canvas& canvas,
              KvCache& cache, DenoiseCounters& counters);

  /// The positions of the refresh launched since the last call; empty: none was.
  std::vector<Position> take_launched() { return std::exchange(launched_, {}); }

  /// Edits merged since the last call, before the pass. Errors: those of the second path's pass.
  Expected<std::vector<Edit>> take_early();

  /// Whether a refresh must be merged at the boundary before step `now`. `ending`: no pass will follow.
  bool due(std::int64_t now, bool ending) const { return path_.due(now) || (path_.busy() && ending); }

  /// Applies the second path's results to the canvas; returns the edits that changed it.
  Expected<std::vector<Edit>> merge(const DecodeContext& context, Reviser& reviser, Canvas& canvas, KvCache& cache,
                                    DenoiseCounters& counters);

 private:
  SecondPath path_;
  std::vector<TokenRule> rules_;
  std::vector<Position> launched_;
  Expected<std::vector<Edit>> early_{std::vector<Edit>()};
};

}  // namespace dllm
