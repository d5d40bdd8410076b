#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "eval/statistics.h"
#include "eval/text_table.h"

namespace dllm {

/// The results of one configuration; all configurations of a comparison answer the same items in the same order.
struct Contender {
  std::string name;
  std::string options;  ///< as given
  EvalReport report;
};

/// A contender's figures, and its item-by-item difference from the first one.
struct ComparisonRow {
  std::string name, options;
  TaskScore score;
  Interval accuracy;
  PairedDifference against_first;  ///< all zero for the first
  double agreement = 0;            ///< share of items with the same text as the first one's answer
  double same_verdict = 1;         ///< share of items that are right in both or wrong in both

  double per_item(double sum) const { return score.items > 0 ? sum / static_cast<double>(score.items) : 0; }
  double milliseconds() const { return 1e3 * per_item(score.seconds); }
  double rows_forwarded() const { return per_item(static_cast<double>(score.rows_forwarded)); }
  double rows_scored() const { return per_item(static_cast<double>(score.rows_scored)); }
};

/// Precondition: all contenders have the same number of records, and there is at least one.
std::vector<ComparisonRow> compare(const std::vector<Contender>& contenders);

/// name, correct % with interval, difference to the first in points with interval, NFE, TPF, rows forwarded and scored,
/// ms (per item), tok/s, same text %.
TextTable comparison_table(const std::vector<ComparisonRow>& rows);

/// Accuracy in percent per task and configuration.
TextTable task_table(const std::vector<Contender>& contenders);

nlohmann::ordered_json comparison_json(const std::vector<Contender>& contenders,
                                       const std::vector<ComparisonRow>& rows);

}  // namespace dllm
