#include "eval/eval_report.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "eval/statistics.h"

namespace dllm {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Cell = std::function<std::string(const TaskScore&)>;

struct ScoreColumn {
  const char* title;
  Cell cell;
};

std::string percent(double share) { return fmt::format("{:.1f}", 100 * share); }

std::string interval(const TaskScore& s) {
  const Interval i = wilson_interval(s.correct, s.items);
  return fmt::format("{:.1f}-{:.1f}", 100 * i.low, 100 * i.high);
}

std::vector<ScoreColumn> columns_of(const EvalReport& report) {
  std::vector<ScoreColumn> columns = {{"items", [](const TaskScore& s) { return fmt::format("{}", s.items); }}};
  const auto add = [&](const char* title, Cell cell) { columns.push_back({title, std::move(cell)}); };
  if (report.scoring == Scoring::kLikelihood) {
    add("tokens", [](const TaskScore& s) { return fmt::format("{}", s.target_tokens); });
    add("nats/token", [](const TaskScore& s) { return fmt::format("{:.4f}", s.loss_per_token()); });
    add("nats/item", [](const TaskScore& s) {
      return fmt::format("{:.3f}", s.items > 0 ? -s.log_likelihood / static_cast<double>(s.items) : 0.0);
    });
    add("passes", [](const TaskScore& s) { return fmt::format("{:.1f}", s.mean_nfe()); });
    return columns;
  }
  add("correct %", [](const TaskScore& s) { return percent(s.accuracy()); });
  if (report.all.strict_items > 0) add("strict %", [](const TaskScore& s) { return percent(s.strict_accuracy()); });
  if (report.all.per_byte_items > 0)
    add("per byte %", [](const TaskScore& s) { return percent(s.per_byte_accuracy()); });
  add("95 %", interval);
  if (report.scoring == Scoring::kChoices) {
    add("passes", [](const TaskScore& s) { return fmt::format("{:.1f}", s.mean_nfe()); });
    return columns;
  }
  add("NFE", [](const TaskScore& s) { return fmt::format("{:.1f}", s.mean_nfe()); });
  add("TPF", [](const TaskScore& s) { return fmt::format("{:.2f}", s.tokens_per_forward()); });
  add("tok/s", [](const TaskScore& s) { return fmt::format("{:.1f}", s.tokens_per_second()); });
  return columns;
}

}  // namespace

TextTable score_table(const EvalReport& report) {
  const auto columns = columns_of(report);
  TextTable table;
  table.columns.push_back({"task", true});
  for (const ScoreColumn& column : columns) table.columns.push_back({column.title});
  const auto row = [&](const TaskScore& score) {
    std::vector<std::string> cells = {score.task};
    for (const ScoreColumn& column : columns) cells.push_back(column.cell(score));
    table.rows.push_back(std::move(cells));
  };
  for (const TaskScore& score : report.tasks) row(score);
  row(report.all);
  return table;
}

OrderedJson score_json(const TaskScore& score, Scoring scoring) {
  if (scoring == Scoring::kLikelihood)
    return {{"items", score.items},
            {"target_tokens", score.target_tokens},
            {"log_likelihood", score.log_likelihood},
            {"nats_per_token", score.loss_per_token()},
            {"nfe", score.nfe},
            {"seconds", score.seconds}};
  const Interval accuracy = wilson_interval(score.correct, score.items);
  OrderedJson json = {{"items", score.items},
                      {"correct", score.correct},
                      {"accuracy", score.accuracy()},
                      {"accuracy_95", {accuracy.low, accuracy.high}}};
  if (score.strict_items > 0) json["strict_accuracy"] = score.strict_accuracy();
  if (score.per_byte_items > 0) json["per_byte_accuracy"] = score.per_byte_accuracy();
  json["nfe"] = score.nfe;
  json["mean_nfe"] = score.mean_nfe();
  if (scoring == Scoring::kGenerate) {
    json["committed_tokens"] = score.committed;
    json["tokens_per_forward"] = score.tokens_per_forward();
    json["answer_tokens"] = score.answer_tokens;
    json["rows_forwarded"] = score.rows_forwarded;
    json["rows_scored"] = score.rows_scored;
  }
  json["seconds"] = score.seconds;
  if (scoring == Scoring::kGenerate) json["tokens_per_second"] = score.tokens_per_second();
  return json;
}

OrderedJson record_json(const EvalRecord& record, Scoring scoring) {
  OrderedJson json = {{"line", record.item.line},
                      {"task", record.item.task},
                      {"prompt", record.item.prompt},
                      {"answer", record.item.answer}};
  if (scoring != Scoring::kLikelihood) {
    json["text"] = record.text;
    json["extracted"] = record.extracted;
    json["correct"] = record.correct;
  }
  if (record.strict) json["strict"] = *record.strict;
  if (record.per_byte) json["per_byte"] = *record.per_byte;
  if (!record.log_likelihoods.empty()) json["log_likelihoods"] = record.log_likelihoods;
  if (record.target_tokens > 0) json["target_tokens"] = record.target_tokens;
  if (!record.note.empty()) json["note"] = record.note;
  json["nfe"] = record.stats.nfe;
  if (scoring == Scoring::kGenerate) {
    json["steps"] = record.stats.steps;
    json["committed_tokens"] = record.stats.committed_tokens;
    json["answer_tokens"] = record.stats.answer_tokens;
    json["rows_forwarded"] = record.stats.rows_forwarded;
    json["rows_scored"] = record.stats.rows_scored;
  }
  json["seconds"] = record.stats.seconds;
  if (scoring == Scoring::kGenerate) json["hash"] = fmt::format("{:016x}", record.hash);
  return json;
}

OrderedJson report_json(const EvalReport& report) {
  OrderedJson tasks = OrderedJson::object(), records = OrderedJson::array();
  for (const TaskScore& score : report.tasks) tasks[score.task] = score_json(score, report.scoring);
  for (const EvalRecord& record : report.records) records.push_back(record_json(record, report.scoring));
  return {{"scoring", scoring_name(report.scoring)},
          {"tasks", tasks},
          {"all", score_json(report.all, report.scoring)},
          {"complete", report.complete},
          {"records", records}};
}

}  // namespace dllm
