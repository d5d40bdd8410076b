#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "app/cli/options.h"
#include "dllm/model.h"
#include "eval/evaluate.h"
#include "eval/likelihood.h"

namespace dllm::app {

/// Which items are used, and how answers are scored: the flags that eval and compare share.
struct EvalFlags {
  std::string format, task, system, scoring;
  std::int32_t offset = 0, limit = 0, shots = 0, samples = 128;
  std::int32_t batch = 1;  ///< masks of a likelihood per forward pass
  JudgeOptions judging;

  void add(Flags& flags);
  /// The items of a file after the flags' filters. Errors: those of read_eval_set; kUsage for an unknown task.
  Expected<EvalSet> read(const std::string& path) const;
  /// As given, or the kind's default.
  Scoring scoring_of(const EvalSet& set) const;
  std::vector<ChatTurn> turns(const std::string& prompt) const;
  /// evaluate()'s view of `model`; both must outlive the result.
  EvalModel bind(const LanguageModel& model, const GenerateOptions& options, bool raw, std::stop_token stop) const;
};

}  // namespace dllm::app
