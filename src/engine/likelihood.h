#pragma once

#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "dllm/error.h"
#include "dllm/model.h"

namespace dllm {

/// For each text, the log-probabilities (nats) of `ids` at the positions `masked` (ascending), which the model sees as
/// masks; all other tokens are visible. Autoregressive models, which have no mask, see every token and predict each
/// from those before it. `cfg_scale` != 0: guided by a pass whose first `prompt` positions are masked too (LLaDA, arXiv
/// 2502.09992). All texts share one forward pass, and each result is bit-identical to that of a separate call. Errors:
/// kUsage for ids or positions out of range, guidance without a mask; kResource.
Expected<std::vector<std::vector<double>>> masked_log_probs(Backend& backend, const std::vector<MaskedText>& texts,
                                                            double cfg_scale);

}  // namespace dllm
