#pragma once

#include <span>

#include "backend/backend.h"

namespace dllm::npu {

/// Computes the scores of one row from its logits, on the host: for requests that the NPU's own reduction does not
/// support (draws, rules, lists, entropies). The definitions are those of all backends: NaN logits are ignored; the
/// distribution is the softmax over the counted tokens, at the request's temperature if it describes what is sampled;
/// the filters keep a prefix of the counted tokens (KeptTokens); ties go to the lower id. Sums in float64.
struct HostScores {
  RowScore score;
  std::vector<TopToken> top;  ///< request.top_tokens of them, best first, padded with token -1
};
HostScores reduce_on_host(std::span<const float> logits, const ScoreRequest& request, Position position);

/// The scores of a batch from its logits, [sequence][scored][vocab], with guidance applied. Sequences that are only the
/// unconditional half of another have empty scores.
std::vector<Scores> score_on_host(std::span<const SequenceStep> batch, const std::vector<std::vector<float>>& logits,
                                  std::int64_t vocab);

/// Gives the sequences that ask for them their part of `hidden`: all rows, or the scored ones, of what op::HiddenOut
/// handed out, in the order of the batch. `scores`: one per sequence.
void hand_out(std::span<const SequenceStep> batch, std::span<const float> hidden, bool scored,
              std::vector<Scores>& scores);

}  // namespace dllm::npu
