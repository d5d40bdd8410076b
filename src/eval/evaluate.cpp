#include "eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/try.h"

namespace dllm {
namespace {

TaskScore& score_of(std::vector<TaskScore>& tasks, const std::string& name) {
  const auto found = std::lower_bound(tasks.begin(), tasks.end(), name,
                                      [](const TaskScore& s, const std::string& n) { return s.task < n; });
  if (found != tasks.end() && found->task == name) return *found;
  TaskScore fresh;
  fresh.task = name;
  return *tasks.insert(found, std::move(fresh));
}

using MaybeRecord = Expected<std::optional<EvalRecord>>;

MaybeRecord by_generation(const TaskKind& kind, const EvalItem& item, const EvalModel& model,
                          const JudgeOptions& judging) {
  DLLM_TRY(Generation generation, model.answer(item.prompt));
  if (generation.finish == FinishReason::kCancelled) return std::optional<EvalRecord>();
  DLLM_TRY(Verdict verdict, kind.judge(item, generation.text, judging));
  return std::optional(EvalRecord{.item = item,
                                  .text = std::move(generation.text),
                                  .correct = verdict.correct,
                                  .extracted = std::move(verdict.extracted),
                                  .strict = verdict.strict,
                                  .note = std::move(verdict.note),
                                  .stats = generation.stats,
                                  .hash = generation.hash});
}

std::size_t best_of(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

/// Likelihoods of `targets`, and their cost; nullopt if cancelled.
MaybeRecord likelihoods(const EvalItem& item, const std::vector<std::string>& targets, std::uint32_t number,
                        const EvalModel& model) {
  EvalRecord record{.item = item, .text = {}};
  const auto start = std::chrono::steady_clock::now();
  DLLM_TRY(const auto results, model.likelihoods(item.prompt, targets, number));
  for (const TargetLikelihood& result : results) {
    if (result.cancelled) return std::optional<EvalRecord>();
    record.log_likelihoods.push_back(result.log_likelihood);
    record.target_tokens = result.tokens;
    record.stats.nfe += result.passes;
  }
  record.stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return std::optional(std::move(record));
}

MaybeRecord by_choices(const EvalItem& item, std::uint32_t number, const EvalModel& model) {
  DLLM_TRY(auto record, likelihoods(item, item.choices, number, model));
  if (!record) return record;
  std::vector<double> per_byte;
  for (std::size_t i = 0; i < item.choices.size(); ++i)
    per_byte.push_back(record->log_likelihoods[i] /
                       static_cast<double>(std::max<std::size_t>(1, item.choices[i].size())));
  const std::size_t best = best_of(record->log_likelihoods), right = static_cast<std::size_t>(item.label);
  record->text = record->extracted = item.choices[best];
  record->correct = best == right;
  record->per_byte = best_of(per_byte) == right;
  record->target_tokens = 0;
  return record;
}

}  // namespace

void TaskScore::add(const EvalRecord& record) {
  ++items;
  correct += record.correct ? 1 : 0;
  strict += record.strict.value_or(false) ? 1 : 0;
  strict_items += record.strict ? 1 : 0;
  per_byte += record.per_byte.value_or(false) ? 1 : 0;
  per_byte_items += record.per_byte ? 1 : 0;
  nfe += record.stats.nfe;
  committed += record.stats.committed_tokens;
  answer_tokens += record.stats.answer_tokens;
  rows_forwarded += record.stats.rows_forwarded;
  rows_scored += record.stats.rows_scored;
  target_tokens += record.target_tokens;
  if (record.target_tokens > 0) log_likelihood += record.log_likelihoods.front();
  seconds += record.stats.seconds;
}

void EvalReport::add(EvalRecord record) {
  all.task = "all";
  all.add(record);
  score_of(tasks, record.item.task).add(record);
  records.push_back(std::move(record));
}

Expected<void> check_scoring(const TaskKind& kind, Scoring scoring) {
  if (std::find(kind.scorings.begin(), kind.scorings.end(), scoring) != kind.scorings.end()) return {};
  std::string known;
  for (const Scoring s : kind.scorings) known += (known.empty() ? "" : ", ") + std::string(scoring_name(s));
  return Error{ErrorCode::kUsage, fmt::format("{} items cannot be scored by {}", kind.name, scoring_name(scoring)),
               "--scoring", "known: " + known};
}

MaybeRecord evaluate_item(const EvalSet& set, std::size_t index, Scoring scoring, const EvalModel& model,
                          const JudgeOptions& judging) {
  const EvalItem& item = set.items[index];
  const auto number = static_cast<std::uint32_t>(item.line);
  MaybeRecord record = scoring == Scoring::kGenerate  ? by_generation(*set.kind, item, model, judging)
                       : scoring == Scoring::kChoices ? by_choices(item, number, model)
                                                      : likelihoods(item, {item.answer}, number, model);
  if (record) return record;
  Error error = std::move(record).error();
  error.where = fmt::format("item of line {}{}{}", item.line, error.where.empty() ? "" : ", ", error.where);
  return error;
}

Expected<EvalReport> evaluate(const EvalSet& set, Scoring scoring, const EvalModel& model, const JudgeOptions& judging,
                              const EvalProgress& progress) {
  DLLM_CHECK_OK(check_scoring(*set.kind, scoring));
  EvalReport report;
  report.scoring = scoring;
  report.all.task = "all";
  for (std::size_t i = 0; i < set.items.size(); ++i) {
    DLLM_TRY(auto record, evaluate_item(set, i, scoring, model, judging));
    if (!record) {
      report.complete = false;
      break;
    }
    report.add(*std::move(record));
    if (progress) progress(report, set.items.size());
  }
  return report;
}

}  // namespace dllm
