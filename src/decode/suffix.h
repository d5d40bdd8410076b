#pragma once

#include "base/types.h"

namespace dllm {

/// Which positions after the window the model sees. Masks there tell a fully bidirectional model how long the answer
/// may become; each costs a row where a policy forwards the suffix.
enum class SuffixPolicy {
  kFull,  ///< all of the canvas
  kNear,  ///< the nearest `near`
  kNone,  ///< none: to the model, the canvas ends with the window
  kGrow,  ///< as many as the answer seems to need (AnswerGrowth)
};

/// Of kGrow; the names are explained at AnswerGrowth. Defaults of LLaDA's runs in the paper, except for `step` (there
/// 8), as every step costs a pass.
struct GrowthConfig {
  Position initial = 64, step = 32, check = 32, insert = 8;
  double threshold = 0.5, insert_below = 0.1, insert_until = 0.9;
};

struct Suffix {
  SuffixPolicy policy = SuffixPolicy::kFull;
  Position near = 32;
  GrowthConfig growth{};
};

}  // namespace dllm
