#pragma once

#include <cstdint>
#include <optional>
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

struct SlotOptions {
  double slot_threshold = 0.9;                ///< of a slot's first token, above which the slot is chosen
  double token_threshold = 0.9;               ///< above which a token behind it stands
  std::optional<std::int32_t> slot_length{};  ///< absent: the model's
};

/// Which way a model trained for several decodes.
struct ModeConfig {
  DecodingMode mode = DecodingMode::kAutoregressive;
  DraftOptions draft{};  ///< of self-speculation
  SlotOptions slots{};   ///< of slots
};

}  // namespace dllm
