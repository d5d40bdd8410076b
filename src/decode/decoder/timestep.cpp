// Dream's sampler (dllm-reference B.2): time runs from 1 to eps in equal steps; going from t to s, a masked position is
// decided with probability 1 - s/t. "origin" draws that per position; the others decide int(R (1 - s/t)) of the R
// masks, the surest ones by probability (maskgit-plus), margin (topk-margin) or negative entropy (entropy).
//
// How many are decided is known before the forward pass. Where that is none, upstream still runs the model for
// nothing; here the step is passed over without a pass, which changes no token (--compat runs it).
#include <cmath>

#include "decode/decoder.h"

namespace dllm {
namespace {

enum class Surety { kOrigin, kProbability, kMargin, kEntropy };

class Timestep : public Decoder {
 public:
  Timestep(const DecoderConfig& config, Surety surety) : config_(config), surety_(surety) {}

  void configure(ScoreRequest& request) const override { request.distribution = ScoreDistribution::kSampled; }

  std::vector<Position> wanted(const DecodeContext& context) override {
    std::vector<Position> masked = Decoder::wanted(context);
    const std::int32_t steps = steps_of(context);
    const double share = decided_share(context.window_step, steps);
    if (surety_ == Surety::kOrigin) {
      std::vector<Position> drawn;
      for (Position p : masked)
        if (uniform01(context.rng, RngPurpose::kTransfer, context.step, static_cast<std::uint32_t>(p)) < share)
          drawn.push_back(p);
      count_ = drawn.size();
      if (!config_.compat) return drawn;
      chosen_ = std::move(drawn);
      return masked;
    }
    count_ = context.window_step + 1 >= steps ? masked.size()
                                              : static_cast<std::size_t>(static_cast<double>(masked.size()) * share);
    if (count_ == 0 && !config_.compat) return {};
    return masked;
  }

  bool keeps_schedule() const override { return count_ == 0; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    if (surety_ == Surety::kOrigin) return decode_origin(candidates);
    return commit_best(candidates, count_, [&](const Candidate& candidate) { return rank(context, candidate); });
  }

 private:
  std::int32_t steps_of(const DecodeContext& context) const {
    // Not window_steps(): a schedule may have more steps than masks, most of which decide nothing.
    if (config_.steps <= 0) return std::max<std::int32_t>(1, context.window_masks_at_start);
    const double share = static_cast<double>(context.window_masks_at_start) / std::max<Position>(1, config_.length);
    return std::max<std::int32_t>(1, static_cast<std::int32_t>(std::lround(config_.steps * share)));
  }

  /// 1 - s/t for step i of `steps`; the last step decides everything.
  double decided_share(std::int32_t i, std::int32_t steps) const {
    if (i + 1 >= steps) return 1.0;
    const double width = (1.0 - config_.eps) / steps;
    const double t = 1.0 - width * i, s = 1.0 - width * (i + 1);
    return 1.0 - s / t;
  }

  std::vector<Edit> decode_origin(std::span<const Candidate> candidates) const {
    std::vector<Edit> edits;
    std::size_t next = 0;
    for (const Candidate& candidate : candidates) {
      if (config_.compat) {
        if (next == chosen_.size() || chosen_[next] != candidate.position) continue;
        ++next;
      }
      if (candidate.eligible) edits.push_back(commit(candidate));
    }
    return edits;
  }

  double rank(const DecodeContext& context, const Candidate& candidate) const {
    const double surety = surety_ == Surety::kMargin    ? candidate.margin
                          : surety_ == Surety::kEntropy ? -candidate.entropy
                                                        : candidate.confidence;
    if (config_.algorithm_temperature <= 0) return surety;
    // Drawing k without replacement from softmax(surety / T) is taking the k largest surety / T + Gumbel.
    return surety / config_.algorithm_temperature +
           gumbel(context.rng, RngPurpose::kOrder, context.step, static_cast<std::uint32_t>(candidate.position), 0);
  }

  DecoderConfig config_;
  Surety surety_;
  std::size_t count_ = 0;
  std::vector<Position> chosen_;
};

}  // namespace

std::unique_ptr<Decoder> make_origin_decoder(const DecoderConfig& config) {
  return std::make_unique<Timestep>(config, Surety::kOrigin);
}
std::unique_ptr<Decoder> make_maskgit_plus_decoder(const DecoderConfig& config) {
  return std::make_unique<Timestep>(config, Surety::kProbability);
}
std::unique_ptr<Decoder> make_topk_margin_decoder(const DecoderConfig& config) {
  return std::make_unique<Timestep>(config, Surety::kMargin);
}
std::unique_ptr<Decoder> make_entropy_decoder(const DecoderConfig& config) {
  return std::make_unique<Timestep>(config, Surety::kEntropy);
}

}  // namespace dllm
