#pragma once

#include <vector>

#include "backend/backend.h"
#include "base/types.h"
#include "dllm/error.h"
#include "dllm/model.h"

namespace dllm {

/// The log-probability (nats) of an answer and its end, by the chain rule from left to right: of each token given the
/// prompt, the tokens before it and masks after it, on a canvas of `canvas` positions, and of any of `stops` after the
/// last one (nothing, if there are none). The probabilities of all answers that end within the canvas
/// add up to 1 at most. Autoregressive models see no masks. One forward pass, of a sequence per token. Errors: kUsage
/// (ids out of range, nothing before the first token that predicts it, too long for the canvas or the context);
/// kUnsupported (a model that refines canvases); kInvalidFile (a prediction that is no number); kResource.
Expected<double> answer_log_prob(Backend& backend, const std::vector<TokenId>& prompt,
                                 const std::vector<TokenId>& answer, const std::vector<TokenId>& stops,
                                 Position canvas);

/// The tokens of each choice. Errors: kUsage (none, an empty one, the same one twice).
Expected<std::vector<std::vector<TokenId>>> choice_ids(const LanguageModel& model,
                                                       const std::vector<std::string>& choices);
/// Positions for the longest of them and its end.
Position choice_canvas(const std::vector<std::vector<TokenId>>& choices);
/// Sets the probabilities among the choices from their log-probabilities.
void set_shares(std::vector<ChoiceScore>& scores);

}  // namespace dllm
