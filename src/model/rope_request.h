#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"
#include "model/source.h"

namespace dllm {

/// Another scaling of positions than the file's, for contexts beyond those of training.
struct RopeRequest {
  /// none, linear (arXiv 2306.15595), ntk (a larger base: theta factor^(d / (d - 2)), so that the slowest pair turns as
  /// under linear and the fastest as before), yarn (arXiv 2309.00071); empty: the file's.
  std::string scaling;
  double factor = 0;          ///< how many times as long contexts become; 0: not given
  std::int32_t original = 0;  ///< positions of the training; 0: the file's
};

/// Replaces the file's keys of scaling. The model's context becomes `factor` times the original one. Errors: kUsage
/// (a factor without a scaling, none below or at 1, an unknown scaling), kUnsupported (frequencies in a tensor).
Expected<void> rescale_rope(const RopeRequest& request, ModelSource& source);

}  // namespace dllm
