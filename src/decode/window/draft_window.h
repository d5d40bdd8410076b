#pragma once

#include "backend/latency_table.h"
#include "decode/mode/mode.h"
#include "decode/window/acceptance.h"
#include "model/model_desc.h"

namespace dllm {

/// How many rows the next round of self-speculation forwards: the known first token and drafts. One row is a plain
/// autoregressive step.
class DraftWindow {
 public:
  /// `latency`: borrowed, for DraftObjective::kRate; nullptr: unknown, and then the other objective holds. `drafted`:
  /// its block bounds both options, and its cost replaces that of a draft by the model itself.
  DraftWindow(const DraftOptions& options, const LatencyTable* latency, const DraftedDesc& drafted = {});

  /// `left`: positions that are not decided. `context`: positions that the rows see. In [1, left].
  Position next(Position left, Position context) const;
  /// A round of `rows` rows brought `accepted` tokens; `ended`: it ended the answer, and tells nothing of the draft.
  void observe(Position rows, Position accepted, bool ended);

 private:
  Position best_width(Position most, Position context) const;
  /// Milliseconds of a round of `rows` rows: its draft and its verification.
  double round_ms(Position rows, Position context) const;

  DraftOptions options_;
  const LatencyTable* latency_;
  DraftedDesc drafted_;
  Position width_;
  Acceptance acceptance_;
  int since_draft_ = 0;  ///< plain steps since the last draft
};

}  // namespace dllm
