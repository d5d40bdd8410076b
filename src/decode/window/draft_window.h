#pragma once

#include "backend/latency_table.h"
#include "decode/mode/mode.h"
#include "decode/window/acceptance.h"

namespace dllm {

/// How many rows the next round of self-speculation forwards: the known first token and drafts. One row is a plain
/// autoregressive step.
class DraftWindow {
 public:
  /// `latency`: borrowed, for DraftObjective::kRate; nullptr: unknown, and then the other objective holds.
  DraftWindow(const DraftOptions& options, const LatencyTable* latency);

  /// `left`: positions that are not decided. `context`: positions that the rows see. In [1, left].
  Position next(Position left, Position context) const;
  /// A round of `rows` rows brought `accepted` tokens; `ended`: it ended the answer, and tells nothing of the draft.
  void observe(Position rows, Position accepted, bool ended);

 private:
  Position best_width(Position most, Position context) const;

  DraftOptions options_;
  const LatencyTable* latency_;
  Position width_;
  Acceptance acceptance_;
  int since_draft_ = 0;  ///< plain steps since the last draft
};

}  // namespace dllm
