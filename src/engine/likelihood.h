#pragma once

#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "dllm/error.h"

namespace dllm {

/// Log-probabilities (nats) of `ids` at the positions `masked` (ascending), which the model sees as masks; all other
/// tokens are visible. Autoregressive models, which have no mask, see every token and predict each from those before
/// it. `cfg_scale` != 0: guided by a pass whose first `prompt` positions are masked too (dllm-reference B.1). Errors:
/// kUsage for ids or positions out of range, guidance without a mask; kResource.
Expected<std::vector<double>> masked_log_probs(Backend& backend, const std::vector<TokenId>& ids,
                                               const std::vector<Position>& masked, double cfg_scale, Position prompt);

}  // namespace dllm
