#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "dllm/error.h"
#include "model/model_desc.h"

namespace dllm {

/// A prompt with its answer, as tokens.
struct CalibrationText {
  std::vector<TokenId> prompt;  ///< never masked
  std::vector<TokenId> answer;  ///< filled up with ends of the answer to whole blocks
};

/// Which tokens of an answer the model sees as masks during calibration.
enum class CalibrationMasks {
  kRandom,    ///< each with probability t, and t uniform in (0, 1): what the model was trained on (LLaDA, eq. 3)
  kDecoding,  ///< as runs see it: in a random block each with probability t, all after it up to the canvas's end
  kNone       ///< none, as a causal model's calibration sees a text; every row is scored
};

struct CanvasOptions {
  CalibrationMasks masks = CalibrationMasks::kRandom;
  std::int32_t per_text = 1;  ///< canvases made of each text, with different masks
  std::int32_t block = 32;    ///< of kDecoding
  std::int32_t canvas = 0;    ///< of kDecoding: positions of an answer; shorter ones are followed by masks
  std::uint64_t seed = 0;
};

/// What the model reads in a pass over a whole canvas.
struct CalibrationCanvas {
  std::vector<TokenId> tokens;
  /// Ascending rows whose predictions count: those that predict masks (of kDecoding, in the random block).
  std::vector<std::int32_t> scored;
  std::vector<TokenId> targets;  ///< what they should predict
};

/// Canvases of all texts; a function of texts and options. Texts longer than the context are cut at its end. At least
/// one token of each canvas is masked. Errors: kUsage, if there are no texts, or for masks of a model without a mask
/// token.
Expected<std::vector<CalibrationCanvas>> make_canvases(const std::vector<CalibrationText>& texts, const ModelDesc& desc,
                                                       const CanvasOptions& options);

}  // namespace dllm
