#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "eval/eval_set.h"

namespace dllm {

/// The likelihood of a continuation under the model.
struct TargetLikelihood {
  double log_likelihood = 0;  ///< nats
  std::int32_t tokens = 0;
  std::int32_t passes = 0;
  bool cancelled = false;  ///< ends the evaluation; the item is not counted
};

/// The model's interface to an evaluation. `item` numbers the request, so that random draws differ between items. The
/// likelihoods of an item's targets are requested together, so that they can share forward passes; if one is cancelled,
/// the list ends there.
struct EvalModel {
  std::function<Expected<Generation>(const std::string& prompt)> answer;
  std::function<Expected<std::vector<TargetLikelihood>>(const std::string& prompt,
                                                        const std::vector<std::string>& targets, std::uint32_t item)>
      likelihoods;
};

/// One answered item.
struct EvalRecord {
  EvalItem item;
  std::string text;  ///< generated, or the chosen continuation
  bool correct = false;
  std::string extracted = {};
  std::optional<bool> strict = {};           ///< by the kind's stricter rule
  std::optional<bool> per_byte = {};         ///< choices: right by likelihood per byte (acc_norm)
  std::vector<double> log_likelihoods = {};  ///< of the choices, or of the expected answer
  std::int32_t target_tokens = 0;            ///< of the expected answer (likelihood scoring)
  std::string note = {};
  GenerateStats stats = {};
  std::uint64_t hash = 0;
};

/// Sums over the items of one task.
struct TaskScore {
  std::string task = {};
  std::int64_t items = 0;
  std::int64_t correct = 0;
  std::int64_t strict = 0, strict_items = 0;      ///< of items with a stricter verdict
  std::int64_t per_byte = 0, per_byte_items = 0;  ///< of items with choices
  std::int64_t nfe = 0;
  std::int64_t committed = 0;
  std::int64_t answer_tokens = 0;
  std::int64_t rows_forwarded = 0, rows_scored = 0;
  double log_likelihood = 0;  ///< of expected answers, nats
  std::int64_t target_tokens = 0;
  double seconds = 0;

  void add(const EvalRecord& record);

  double accuracy() const { return ratio(correct, items); }
  double strict_accuracy() const { return ratio(strict, strict_items); }
  double per_byte_accuracy() const { return ratio(per_byte, per_byte_items); }
  double mean_nfe() const { return ratio(nfe, items); }
  /// Tokens per forward pass (TPF): committed positions over passes.
  double tokens_per_forward() const { return ratio(committed, nfe); }
  double tokens_per_second() const { return ratio(answer_tokens, seconds); }
  double loss_per_token() const { return ratio(-log_likelihood, target_tokens); }  ///< nats

 private:
  template <class A, class B>
  static double ratio(A a, B b) {
    return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0;
  }
};

struct EvalReport {
  Scoring scoring = Scoring::kGenerate;
  std::vector<EvalRecord> records = {};  ///< in the order of the items
  std::vector<TaskScore> tasks = {};     ///< by name
  TaskScore all = {};
  bool complete = true;  ///< false: stopped before the last item

  void add(EvalRecord record);
};

/// Called after each item.
using EvalProgress = std::function<void(const EvalReport& so_far, std::size_t total)>;

/// One item. nullopt: cancelled. Errors: those of the model and of the judge, with the item's line in `where`.
Expected<std::optional<EvalRecord>> evaluate_item(const EvalSet& set, std::size_t index, Scoring scoring,
                                                  const EvalModel& model, const JudgeOptions& judging);

/// All items, in order. Errors: as evaluate_item; kUsage for a scoring that the kind does not allow.
Expected<EvalReport> evaluate(const EvalSet& set, Scoring scoring, const EvalModel& model,
                              const JudgeOptions& judging = {}, const EvalProgress& progress = {});

Expected<void> check_scoring(const TaskKind& kind, Scoring scoring);

}  // namespace dllm
