#pragma once

#include "base/types.h"

namespace dllm {

/// Which positions after the window the model sees. Masks there tell a fully bidirectional model how long the answer
/// may become; each costs a row where a policy forwards the suffix.
enum class SuffixPolicy {
  kFull,    ///< all of the canvas
  kNear,    ///< the nearest `near`
  kSparse,  ///< the nearest `near`, then fewer with distance (shows_sparsely)
  kNone,    ///< none: to the model, the canvas ends with the window
  kGrow,    ///< as many as the answer seems to need (AnswerGrowth)
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

/// Whether kSparse shows a mask at `position`, if the window ends at `end`: all of the nearest `near`, then every
/// second up to distance 2 near, every fourth up to 4 near, and so on; a `near` of 0 counts as 1. DPad (arXiv
/// 2508.14148) drops distant masks at a rate that grows with distance, too, but only up to a largest distance.
///
/// Strides count from position 0, not from the window: a position once shown stays shown while the window approaches,
/// so caches can keep its K/V.
bool shows_sparsely(Position position, Position end, Position near);

}  // namespace dllm
