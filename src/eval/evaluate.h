#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "dllm/generate.h"
#include "eval/items.h"

namespace dllm {

/// One answered item.
struct EvalRecord {
  EvalItem item;
  std::string text;
  bool correct = false;
  GenerateStats stats;
  std::uint64_t hash = 0;
};

/// Sums over the items of one task.
struct TaskScore {
  std::string task;
  std::int64_t items = 0;
  std::int64_t correct = 0;
  std::int64_t nfe = 0;
  std::int64_t committed = 0;
  std::int64_t answer_tokens = 0;
  double seconds = 0;

  void add(const EvalRecord& record);

  double accuracy() const { return ratio(static_cast<double>(correct), static_cast<double>(items)); }
  double mean_nfe() const { return ratio(static_cast<double>(nfe), static_cast<double>(items)); }
  /// Tokens per forward pass (TPF): committed positions over passes.
  double tokens_per_forward() const { return ratio(static_cast<double>(committed), static_cast<double>(nfe)); }
  double tokens_per_second() const { return ratio(static_cast<double>(answer_tokens), seconds); }

 private:
  static double ratio(double a, double b) { return b > 0 ? a / b : 0; }
};

struct EvalReport {
  std::vector<EvalRecord> records;  ///< in the order of the items
  std::vector<TaskScore> tasks;     ///< by name
  TaskScore all;
  bool complete = true;  ///< false: stopped before the last item
};

/// The whole answer, white space at its end aside.
bool exact_match(std::string_view text, std::string_view answer);

/// Answers one prompt. A result with FinishReason::kCancelled ends the evaluation; that item is not counted.
using Answerer = std::function<Expected<Generation>(const std::string& prompt)>;
/// Called after each item.
using EvalProgress = std::function<void(const EvalReport& so_far, std::size_t total)>;

/// Errors: those of `answer`, with the item's line in `where`.
Expected<EvalReport> evaluate(const std::vector<EvalItem>& items, const Answerer& answer,
                              const EvalProgress& progress = {});

}  // namespace dllm
