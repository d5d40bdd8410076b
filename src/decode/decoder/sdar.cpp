// SDAR's rules (dllm-reference B.12). A block of m masks and s steps has shares m/s, the remainder first; with n the
// share of this step, "sequential" commits the n leftmost positions, "static" the n most confident, "dynamic" every
// position at or above the threshold if there are at least n of them, else the n most confident. Confidence is the
// probability of the token under the distribution that it was drawn from (temperature, top-k, top-p).
#include <algorithm>

#include "decode/decoder.h"

namespace dllm {
namespace {

enum class Rule { kSequential, kStatic, kDynamic };

class Sdar : public Decoder {
 public:
  Sdar(const DecoderConfig& config, Rule rule) : config_(config), rule_(rule) {}

  void configure(ScoreRequest& request) const override { request.distribution = ScoreDistribution::kSampled; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const std::size_t count = share(context);
    if (rule_ == Rule::kSequential)
      return commit_best(candidates, count,
                         [](const Candidate& candidate) { return -static_cast<double>(candidate.position); });
    if (rule_ == Rule::kDynamic) {
      std::vector<Edit> confident;
      for (const Candidate& candidate : candidates)
        if (candidate.eligible && candidate.confidence >= config_.threshold) confident.push_back(commit(candidate));
      if (confident.size() >= count) return confident;
    }
    return commit_best(candidates, count, [](const Candidate& candidate) { return candidate.log_odds; });
  }

 private:
  std::size_t share(const DecodeContext& context) const {
    const std::int32_t masks = context.window_masks_at_start;
    const auto schedule = transfer_schedule(masks, window_steps(config_.steps, config_.length, masks));
    const auto t = static_cast<std::size_t>(context.window_step);
    return static_cast<std::size_t>(t < schedule.size() ? schedule[t] : 1);
  }

  DecoderConfig config_;
  Rule rule_;
};

}  // namespace

std::unique_ptr<Decoder> make_sdar_sequential_decoder(const DecoderConfig& config) {
  return std::make_unique<Sdar>(config, Rule::kSequential);
}
std::unique_ptr<Decoder> make_sdar_static_decoder(const DecoderConfig& config) {
  return std::make_unique<Sdar>(config, Rule::kStatic);
}
std::unique_ptr<Decoder> make_sdar_dynamic_decoder(const DecoderConfig& config) {
  return std::make_unique<Sdar>(config, Rule::kDynamic);
}

}  // namespace dllm
