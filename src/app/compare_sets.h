#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "app/compare_spec.h"
#include "app/eval_model.h"
#include "eval/comparison.h"

namespace dllm::app {

/// Which items `dllm compare` uses, and what may be concluded from them. Any number of configurations may be tried on
/// the set `choose`; a figure that recommends one comes from the set `publish`, which no choice has used. `--items` is
/// neither.
class CompareSets {
 public:
  void add(Flags& flags);
  /// Settings of the file and the command line.
  void take(const CompareSpec& spec);
  /// Errors: kUsage for contradictory settings, or if no items are given.
  Expected<void> resolve();

  /// Items of the set in use.
  const std::string& path() const { return path_; }
  /// Errors: kInvalidFile if the two sets share a prompt; kUsage if --recommend needs what `set` does not have.
  Expected<void> check(const EvalSet& set, const EvalFlags& reading) const;

  /// Lines under a table: the set, the number of configurations tried, the recommendation; empty: nothing to report.
  std::string notes(const std::vector<ComparisonRow>& rows) const;
  /// The same for a report.
  nlohmann::ordered_json json(const std::vector<ComparisonRow>& rows) const;

 private:
  const ComparisonRow* recommended(const std::vector<ComparisonRow>& rows) const;

  std::string items_, choose_, publish_, asked_, path_;
  std::int32_t tried_ = 0;  ///< configurations tried on `choose` before these were compared; 0: not given
  double points_ = -1;      ///< that a recommended configuration may lose; negative: no recommendation
};

}  // namespace dllm::app
