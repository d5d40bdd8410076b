#include "eval/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "eval/eval_report.h"

namespace dllm {
namespace {

PairedCounts count_pairs(const EvalReport& first, const EvalReport& second) {
  PairedCounts counts;
  for (std::size_t i = 0; i < first.records.size(); ++i) {
    const bool a = first.records[i].correct, b = second.records[i].correct;
    ++(a && b ? counts.both : a ? counts.first_only : b ? counts.second_only : counts.neither);
  }
  return counts;
}

double share_of_same_text(const EvalReport& first, const EvalReport& second) {
  if (first.records.empty()) return 0;
  std::int64_t same = 0;
  for (std::size_t i = 0; i < first.records.size(); ++i)
    same += first.records[i].text == second.records[i].text ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(first.records.size());
}

std::string points(double share) { return fmt::format("{:+.1f}", 100 * share); }

}  // namespace

std::vector<ComparisonRow> compare(const std::vector<Contender>& contenders) {
  std::vector<ComparisonRow> rows;
  const EvalReport& first = contenders.front().report;
  for (const Contender& contender : contenders) {
    ComparisonRow row{contender.name, contender.options, contender.report.all, {}, {}, 1};
    row.accuracy = wilson_interval(row.score.correct, row.score.items);
    if (!rows.empty()) {
      const PairedCounts counts = count_pairs(first, contender.report);
      row.against_first = paired_difference(counts);
      row.same_verdict = static_cast<double>(counts.both + counts.neither) /
                         static_cast<double>(std::max<std::int64_t>(1, counts.total()));
      row.agreement = share_of_same_text(first, contender.report);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

TextTable comparison_table(const std::vector<ComparisonRow>& rows) {
  TextTable table;
  table.columns = {{"configuration", true},
                   {"correct %"},
                   {"95 %"},
                   {"points to first"},
                   {"95 %"},
                   {"NFE"},
                   {"TPF"},
                   {"rows"},
                   {"scored"},
                   {"ms"},
                   {"tok/s"},
                   {"same text %"}};
  for (const ComparisonRow& row : rows) {
    const bool first = &row == &rows.front();
    const Interval difference = row.against_first.interval;
    table.rows.push_back(
        {row.name, fmt::format("{:.1f}", 100 * row.score.accuracy()),
         fmt::format("{:.1f}-{:.1f}", 100 * row.accuracy.low, 100 * row.accuracy.high),
         first ? "" : points(row.against_first.difference),
         first ? "" : fmt::format("{} to {}", points(difference.low), points(difference.high)),
         fmt::format("{:.2f}", row.score.mean_nfe()), fmt::format("{:.2f}", row.score.tokens_per_forward()),
         fmt::format("{:.0f}", row.rows_forwarded()), fmt::format("{:.0f}", row.rows_scored()),
         fmt::format("{:.2f}", row.milliseconds()), fmt::format("{:.0f}", row.score.tokens_per_second()),
         fmt::format("{:.1f}", 100 * row.agreement)});
  }
  return table;
}

TextTable task_table(const std::vector<Contender>& contenders) {
  TextTable table;
  table.columns.push_back({"configuration", true});
  for (const TaskScore& task : contenders.front().report.tasks) table.columns.push_back({task.task});
  for (const Contender& contender : contenders) {
    std::vector<std::string> cells = {contender.name};
    for (const TaskScore& task : contender.report.tasks) cells.push_back(fmt::format("{:.0f}", 100 * task.accuracy()));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

nlohmann::ordered_json comparison_json(const std::vector<Contender>& contenders,
                                       const std::vector<ComparisonRow>& rows) {
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ComparisonRow& row = rows[i];
    nlohmann::ordered_json json = {{"name", row.name}, {"options", row.options}};
    json.update(score_json(row.score, contenders[i].report.scoring));
    json["rows_forwarded_per_item"] = row.rows_forwarded();
    json["rows_scored_per_item"] = row.rows_scored();
    json["ms_per_item"] = row.milliseconds();
    json["agreement"] = row.agreement;
    json["same_verdict"] = row.same_verdict;
    if (i > 0)
      json["against_first"] = {{"difference", row.against_first.difference},
                               {"difference_95", {row.against_first.interval.low, row.against_first.interval.high}},
                               {"mcnemar_p", row.against_first.p_value}};
    auto tasks = nlohmann::ordered_json::object();
    for (const TaskScore& task : contenders[i].report.tasks)
      tasks[task.task] = score_json(task, contenders[i].report.scoring);
    json["tasks"] = tasks;
    list.push_back(std::move(json));
  }
  return {{"items", rows.front().score.items}, {"configurations", list}};
}

}  // namespace dllm
