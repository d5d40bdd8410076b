#pragma once

#include <string>

#include "base/types.h"
#include "model/model_desc.h"

namespace dllm {

/// How wide the next draft is.
enum class DraftObjective {
  kAcceptance,  ///< doubled after a draft that was accepted whole, halved after one of which half or less was
  kRate,        ///< most expected tokens per millisecond, from the measured cost of passes
};

struct DraftOptions {
  Position draft_min = 8, draft_max = 32;  ///< rows of a round, the known first token included
  double draft_confidence = 0;             ///< confidence from which a pass of the draft keeps a token; 0: all at once
  double draft_cut = 0;                    ///< a draft ends in front of a token less sure than this; 0: nowhere
  DraftObjective draft_objective = DraftObjective::kAcceptance;
  std::string draft_latency = "auto";
};

/// Which way a model trained for several decodes.
struct ModeConfig {
  DecodingMode mode = DecodingMode::kAutoregressive;
  DraftOptions draft{};  ///< of self-speculation
};

}  // namespace dllm
