#include "eval/eval_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm {
namespace {

using Json = nlohmann::ordered_json;

Json score_json(const TaskScore& score) {
  return {{"items", score.items},
          {"correct", score.correct},
          {"accuracy", score.accuracy()},
          {"nfe", score.nfe},
          {"mean_nfe", score.mean_nfe()},
          {"committed_tokens", score.committed},
          {"tokens_per_forward", score.tokens_per_forward()},
          {"answer_tokens", score.answer_tokens},
          {"seconds", score.seconds},
          {"tokens_per_second", score.tokens_per_second()}};
}

}  // namespace

std::string score_table(const EvalReport& report, bool markdown) {
  std::size_t width = 4;
  for (const TaskScore& score : report.tasks) width = std::max(width, score.task.size());
  const std::string_view left = markdown ? "| " : "", middle = markdown ? " | " : "  ", right = markdown ? " |" : "";
  std::string text = fmt::format("{0}{1:<{2}}{3}{4:>5}{3}{5:>7}{3}{6:>6}{3}{7:>6}{3}{8:>8}{9}\n", left, "task", width,
                                 middle, "items", "exact %", "NFE", "TPF", "tok/s", right);
  if (markdown) text += fmt::format("|{:-<{}}|------:|--------:|-------:|-------:|---------:|\n", "", width + 2);
  const auto row = [&](const TaskScore& s) {
    text += fmt::format("{0}{1:<{2}}{3}{4:>5}{3}{5:>7.1f}{3}{6:>6.1f}{3}{7:>6.2f}{3}{8:>8.1f}{9}\n", left, s.task,
                        width, middle, s.items, 100 * s.accuracy(), s.mean_nfe(), s.tokens_per_forward(),
                        s.tokens_per_second(), right);
  };
  for (const TaskScore& score : report.tasks) row(score);
  row(report.all);
  return text;
}

Json record_json(const EvalRecord& record) {
  return {{"line", record.item.line},
          {"task", record.item.task},
          {"prompt", record.item.prompt},
          {"answer", record.item.answer},
          {"text", record.text},
          {"correct", record.correct},
          {"nfe", record.stats.nfe},
          {"rows_forwarded", record.stats.rows_forwarded},
          {"rows_scored", record.stats.rows_scored},
          {"steps", record.stats.steps},
          {"committed_tokens", record.stats.committed_tokens},
          {"answer_tokens", record.stats.answer_tokens},
          {"seconds", record.stats.seconds},
          {"hash", fmt::format("{:016x}", record.hash)}};
}

Json report_json(const EvalReport& report) {
  Json tasks = Json::object(), records = Json::array();
  for (const TaskScore& score : report.tasks) tasks[score.task] = score_json(score);
  for (const EvalRecord& record : report.records) records.push_back(record_json(record));
  return {{"tasks", tasks}, {"all", score_json(report.all)}, {"complete", report.complete}, {"records", records}};
}

}  // namespace dllm
