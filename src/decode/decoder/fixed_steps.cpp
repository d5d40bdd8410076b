// LLaDA's samplers with a fixed number of steps per block (dllm-reference B.1): step t commits n[t] positions, the most
// confident ones (low-confidence remasking) or random ones.
#include "decode/decoder.h"

namespace dllm {
namespace {

enum class Ranking { kConfidence, kRandom };

class FixedSteps : public Decoder {
 public:
  FixedSteps(const DecoderConfig& config, Ranking ranking) : config_(config), ranking_(ranking) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const std::int32_t masks = context.window_masks_at_start;
    const std::int32_t steps = window_steps(config_.steps, config_.length, masks);
    const auto schedule = transfer_schedule(masks, steps);
    // Steps can run out with masks left if some predictions were masks; the rest goes one by one.
    const std::int32_t count =
        context.window_step < steps ? schedule[static_cast<std::size_t>(context.window_step)] : 1;
    return commit_best(candidates, static_cast<std::size_t>(count), [&](const Candidate& candidate) {
      if (ranking_ == Ranking::kConfidence) return candidate.log_odds;
      return uniform01(context.rng, RngPurpose::kConfidence, context.step,
                       static_cast<std::uint32_t>(candidate.position));
    });
  }

 private:
  DecoderConfig config_;
  Ranking ranking_;
};

}  // namespace

std::unique_ptr<Decoder> make_low_confidence_decoder(const DecoderConfig& config) {
  return std::make_unique<FixedSteps>(config, Ranking::kConfidence);
}

std::unique_ptr<Decoder> make_random_decoder(const DecoderConfig& config) {
  return std::make_unique<FixedSteps>(config, Ranking::kRandom);
}

}  // namespace dllm
