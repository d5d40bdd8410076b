// Dream's sampler (arXiv 2508.15487): time runs from 1 to eps in equal steps; from t to s, a masked position is decided
// with probability 1 - s/t. "origin" draws that per position; the others decide int(R (1 - s/t)) of the R masks, the
// most certain ones by probability (maskgit-plus), margin (topk-margin) or negative entropy (entropy).
//
// The number of decisions is known before the forward pass. If it is zero, upstream still runs the model; here the step
// runs no pass, which changes no token (--compat runs it). Under --compat the mask is a prediction like any other:
// deciding it wastes a place, and in the last step such positions stay masks.
#include <cmath>

#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

enum class Surety { kOrigin, kProbability, kMargin, kEntropy };

struct OriginOptions : StepsOptions {
  double eps = 1e-3;
};

struct TimestepOptions : OriginOptions {
  double algorithm_temperature = 0;
};

OptionRows<OriginOptions> origin_rows() {
  return join_rows<OriginOptions>(
      steps_rows(), OptionRows<OriginOptions>{
                        option("eps", &OriginOptions::eps, 0, 1, "", "last timestep of the schedule, which starts at 1")
                            .flag("--diffusion-eps")});
}

OptionRows<TimestepOptions> timestep_rows() {
  return join_rows<TimestepOptions>(
      origin_rows(),
      OptionRows<TimestepOptions>{option("algorithm_temperature", &TimestepOptions::algorithm_temperature, 0, 1e6, "",
                                         "randomness of the choice of positions; 0: none")
                                      .flag("--diffusion-alg-temp")});
}

/// llama.cpp chooses between its two schedules by --diffusion-eps or --diffusion-block-length: an eps selects Dream's,
/// with the whole answer as one window.
std::string window_of_eps(const OptionMap& given) { return given.contains("eps") ? "whole" : ""; }

class Timestep : public Decoder {
 public:
  Timestep(const TimestepOptions& config, const MethodContext& context, Surety surety)
      : config_(config),
        steps_(config.steps_of(context)),
        length_(context.length),
        compat_(context.compat),
        surety_(surety) {}

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
      if (!compat_) return drawn;
      chosen_ = std::move(drawn);
      return masked;
    }
    count_ = context.window_step + 1 >= steps ? masked.size()
                                              : static_cast<std::size_t>(static_cast<double>(masked.size()) * share);
    if (count_ == 0 && !compat_) return {};
    return masked;
  }

  bool keeps_schedule() const override { return compat_ || count_ == 0; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits =
        surety_ == Surety::kOrigin
            ? decode_origin(candidates)
            : commit_best(candidates, count_, [&](const Candidate& candidate) { return rank(context, candidate); });
    if (compat_ && context.window_step + 1 >= steps_of(context)) leave_the_rest(context.canvas, candidates, edits);
    return edits;
  }

 private:
  std::int32_t steps_of(const DecodeContext& context) const {
    // Not window_steps(): a schedule may have more steps than masks, most of which decide nothing.
    if (steps_ <= 0) return std::max<std::int32_t>(1, context.window_masks_at_start);
    const double share = static_cast<double>(context.window_masks_at_start) / std::max<Position>(1, length_);
    return std::max<std::int32_t>(1, static_cast<std::int32_t>(std::lround(steps_ * share)));
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
      if (compat_) {
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

  TimestepOptions config_;
  std::int32_t steps_;
  Position length_;
  bool compat_;
  Surety surety_;
  std::size_t count_ = 0;
  std::vector<Position> chosen_;
};

DecoderEntry timestep_entry(std::string name, std::string meaning, Surety surety) {
  return declare_method<Decoder>(std::move(name), std::move(meaning), timestep_rows(),
                                 [surety](const TimestepOptions& options, const MethodContext& context) {
                                   return std::make_unique<Timestep>(options, context, surety);
                                 })
      .implies_window(window_of_eps)
      .always({.distribution = ScoreDistribution::kSampled});
}

}  // namespace

DecoderEntry origin_decoder() {
  return declare_method<Decoder>("origin", "Dream's schedule, at positions drawn at random", origin_rows(),
                                 [](const OriginOptions& options, const MethodContext& context) {
                                   return std::make_unique<Timestep>(TimestepOptions{options}, context,
                                                                     Surety::kOrigin);
                                 })
      .alias("0")
      .implies_window(window_of_eps)
      .always({.distribution = ScoreDistribution::kSampled});
}

DecoderEntry maskgit_plus_decoder() {
  return timestep_entry("maskgit-plus", "Dream's schedule, the most probable first", Surety::kProbability);
}

DecoderEntry topk_margin_decoder() {
  return timestep_entry("topk-margin", "Dream's schedule, the largest lead over the second first", Surety::kMargin)
      .alias("2");
}

DecoderEntry entropy_decoder() {
  return timestep_entry("entropy", "Dream's schedule, the lowest entropy first", Surety::kEntropy).alias("1");
}

}  // namespace dllm
