#pragma once

#include "base/types.h"

namespace dllm {

/// Which positions after the window the model sees. Masks there tell a fully bidirectional model how long the answer
/// may become; each costs a row where a policy forwards the suffix.
enum class SuffixPolicy {
  kFull,  ///< all of the canvas
  kNear,  ///< the nearest `near`
  kNone,  ///< none: to the model, the canvas ends with the window
};

struct Suffix {
  SuffixPolicy policy = SuffixPolicy::kFull;
  Position near = 32;
};

}  // namespace dllm
