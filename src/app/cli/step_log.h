#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dllm/generate.h"
#include "dllm/model.h"

namespace dllm::app {

/// The steps of one generation as JSON objects, one per line (`-o jsonl`). Positions count from the answer's start.
///
///     {"type": "step", "step": 3, "nfe": 4, "window": [0, 32], "masked": 12, "text": "the final prefix so far",
///      "commits": [{"position": 5, "token": 17, "text": "2", "confidence": 0.93}],
///      "revisions": [{"position": 4, "token": 9, "text": "x", "confidence": 0.8, "was": 12}], "remasked": [7]}
///
/// `commits` were masks before the step, `revisions` other tokens, and `remasked` are masks again.
class StepLog {
 public:
  explicit StepLog(const LanguageModel& model) : model_(model) {}

  nlohmann::ordered_json step(const StepEvent& event);

 private:
  const LanguageModel& model_;
  std::vector<CanvasCell> canvas_;  ///< of the step before, the answer's part
};

}  // namespace dllm::app
