#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "dllm/model.h"
#include "eval/divergence.h"
#include "eval/eval_set.h"

namespace dllm::app {

/// A configuration whose predictions of masks are compared with the first one's.
struct MaskedContender {
  std::string name;
  const LanguageModel* model = nullptr;
  Divergence divergence{};
};

/// Canvases of items: their answers, in which random tokens are masks, or whole for models that predict the next token.
struct MaskedOptions {
  std::int32_t canvases = 0;  ///< per item
  std::string masks = {};     ///< empty: "decoding", and "none" for models without a mask
  std::uint64_t seed = 1;
};

/// Predictions of the masks of every canvas by every contender, one pass each. `progress`: called with the share done.
/// False: interrupted. Errors: kUsage (models with different tokens, without masks).
Expected<bool> measure_masked(const EvalSet& set, std::vector<MaskedContender>& contenders,
                              const GenerateOptions& options, const MaskedOptions& masked,
                              const std::function<void(std::size_t done, std::size_t canvases)>& progress,
                              const std::stop_token& stop);

}  // namespace dllm::app
