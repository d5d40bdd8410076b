#include "eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

namespace dllm {
namespace {

std::string_view strip_end(std::string_view text) {
  const auto last = text.find_last_not_of(" \t\r\n\v\f");
  return last == std::string_view::npos ? std::string_view() : text.substr(0, last + 1);
}

TaskScore& score_of(std::vector<TaskScore>& tasks, const std::string& name) {
  const auto found = std::lower_bound(tasks.begin(), tasks.end(), name,
                                      [](const TaskScore& s, const std::string& n) { return s.task < n; });
  if (found != tasks.end() && found->task == name) return *found;
  TaskScore fresh;
  fresh.task = name;
  return *tasks.insert(found, std::move(fresh));
}

}  // namespace

bool exact_match(std::string_view text, std::string_view answer) { return strip_end(text) == strip_end(answer); }

void TaskScore::add(const EvalRecord& record) {
  ++items;
  correct += record.correct ? 1 : 0;
  nfe += record.stats.nfe;
  committed += record.stats.committed_tokens;
  answer_tokens += record.stats.answer_tokens;
  seconds += record.stats.seconds;
}

Expected<EvalReport> evaluate(const std::vector<EvalItem>& items, const Answerer& answer,
                              const EvalProgress& progress) {
  EvalReport report;
  report.all.task = "all";
  for (const EvalItem& item : items) {
    auto generation = answer(item.prompt);
    if (!generation) {
      Error error = std::move(generation).error();
      error.where = fmt::format("item of line {}{}{}", item.line, error.where.empty() ? "" : ", ", error.where);
      return error;
    }
    if (generation->finish == FinishReason::kCancelled) {
      report.complete = false;
      break;
    }
    const bool correct = exact_match(generation->text, item.answer);
    report.records.push_back({item, std::move(generation->text), correct, generation->stats, generation->hash});
    report.all.add(report.records.back());
    score_of(report.tasks, item.task).add(report.records.back());
    if (progress) progress(report, items.size());
  }
  return report;
}

}  // namespace dllm
