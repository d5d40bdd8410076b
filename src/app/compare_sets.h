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

/// Which items `dllm compare` asks, and what may be said on their account. Configurations are tried at will on the set
/// `choose`; a figure that recommends one comes from the set `publish`, which no choice has looked at. `--items` is
/// neither.
class CompareSets {
 public:
  void add(Flags& flags);
  /// What the file says and the command line does not.
  void take(const CompareSpec& spec);
  /// Errors: kUsage for combinations that contradict each other, or for no items at all.
  Expected<void> resolve();

  /// Of the set that is asked.
  const std::string& path() const { return path_; }
  /// Errors: kInvalidFile if the two sets share a prompt; kUsage if --recommend asks for what `set` cannot give.
  Expected<void> check(const EvalSet& set, const EvalFlags& reading) const;

  /// Lines under a table: the set, the number of configurations tried, the recommendation; empty: nothing to say.
  std::string notes(const std::vector<ComparisonRow>& rows) const;
  /// The same for a report.
  nlohmann::ordered_json json(const std::vector<ComparisonRow>& rows) const;

 private:
  const ComparisonRow* recommended(const std::vector<ComparisonRow>& rows) const;

  std::string items_, choose_, publish_, asked_, path_;
  std::int32_t tried_ = 0;  ///< configurations tried on `choose` before these were compared; 0: not told
  double points_ = -1;      ///< that a recommended configuration may lose; negative: none is asked for
};

}  // namespace dllm::app
