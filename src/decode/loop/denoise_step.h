#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/step_plan.h"
#include "decode/canvas.h"
#include "dllm/pass_record.h"

namespace dllm {

/// The result of one step.
struct DenoiseStep {
  PositionRange window;
  std::vector<Edit> edits;             ///< that changed the canvas, including merges from the second path
  bool forced = false;                 ///< only the progress rule found a position to commit
  std::optional<PassRecord> record{};  ///< of methods whose commits alone do not tell what their passes did
};

struct DenoiseCounters {
  std::int32_t steps = 0;
  std::int32_t nfe = 0;
  std::int32_t forced = 0;
  std::int32_t second_passes = 0;  ///< on the second path; not in nfe, their rows are below
  std::int32_t rounds = 0;         ///< drafts that were verified
  std::int32_t round_tokens = 0;   ///< tokens that they brought
  std::int64_t rows_forwarded = 0;
  std::int64_t rows_scored = 0;

  void add(const DenoiseCounters& more) {
    steps += more.steps;
    nfe += more.nfe;
    forced += more.forced;
    second_passes += more.second_passes;
    rounds += more.rounds;
    round_tokens += more.round_tokens;
    rows_forwarded += more.rows_forwarded;
    rows_scored += more.rows_scored;
  }
  void add_rows(const StepPlan& plan) {
    rows_forwarded += plan.row_count();
    rows_scored += static_cast<std::int64_t>(plan.scored.size());
  }
};

}  // namespace dllm
