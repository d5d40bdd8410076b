// LLaDA2.0's block sampler (dllm-reference B.8): what exceeds the threshold, if that is at least the schedule's share
// of this step; otherwise the share, most confident first. The schedule spreads the block's full length over its steps,
// so a block that begins in the prompt ends early; upstream ends after the last step even with masks left, here the
// rest goes one by one.
#include <algorithm>

#include "decode/decoder.h"

namespace dllm {
namespace {

class Llada2 : public Decoder {
 public:
  explicit Llada2(const DecoderConfig& config) : config_(config) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const Position length = context.window.end - context.window.begin;
    const std::int32_t steps = window_steps(config_.steps, config_.length, length);
    const auto t = static_cast<std::size_t>(context.window_step);
    const auto schedule = transfer_schedule(length, steps);
    const auto share = static_cast<std::size_t>(t < schedule.size() ? schedule[t] : 1);

    std::vector<Edit> confident;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.confidence > config_.threshold) confident.push_back(commit(candidate));
    if (confident.size() >= share) return confident;
    return commit_best(candidates, share, [](const Candidate& candidate) { return candidate.log_odds; });
  }

 private:
  DecoderConfig config_;
};

}  // namespace

std::unique_ptr<Decoder> make_llada2_decoder(const DecoderConfig& config) { return std::make_unique<Llada2>(config); }

}  // namespace dllm
