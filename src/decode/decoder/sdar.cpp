// SDAR's rules (arXiv 2510.06303). A block of m masks and s steps has shares m/s, the remainder first; with n the share
// of this step, "sequential" commits the n leftmost positions, "static" the n most confident, "dynamic" every position
// at or above the threshold if there are at least n of them, else the n most confident. Confidence is the probability
// of the token under the distribution that it was drawn from (temperature, top-k, top-p).
//
// Under --compat (SDAR's generate.py) s counts the passes of one block, m is its full length even if the prompt ends in
// it, and a confidence must exceed the threshold. Where fewer masks are left than the share, upstream also replaces
// tokens, the prompt's among them; here they stay.
#include <algorithm>

#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

enum class Rule { kSequential, kStatic, kDynamic };

struct DynamicOptions : ThresholdOptions, StepsOptions {};

class Sdar : public Decoder {
 public:
  Sdar(const DynamicOptions& options, const MethodContext& context, Rule rule)
      : threshold_(options.threshold),
        steps_(options.steps_of(context)),
        length_(context.length),
        rule_(rule),
        compat_(context.compat) {}

  void configure(ScoreRequest& request) const override { request.distribution = ScoreDistribution::kSampled; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const std::size_t count = share(context);
    if (rule_ == Rule::kSequential)
      return commit_best(candidates, count,
                         [](const Candidate& candidate) { return -static_cast<double>(candidate.position); });
    if (rule_ == Rule::kDynamic) {
      std::vector<Edit> confident;
      for (const Candidate& candidate : candidates)
        if (candidate.eligible && confident_enough(candidate.confidence)) confident.push_back(commit(candidate));
      if (confident.size() >= count) return confident;
    }
    return commit_best(candidates, count, [](const Candidate& candidate) { return candidate.log_odds; });
  }

 private:
  bool confident_enough(double confidence) const {
    return compat_ ? confidence > threshold_ : confidence >= threshold_;
  }

  std::size_t share(const DecodeContext& context) const {
    const Position masks = compat_ ? context.window.end - context.window.begin : context.window_masks_at_start;
    const std::int32_t steps = compat_ ? std::max(1, steps_) : window_steps(steps_, length_, masks);
    const auto schedule = transfer_schedule(masks, steps);
    const auto t = to_size(context.window_step);
    return to_size(t < schedule.size() ? schedule[t] : 1);
  }

  double threshold_;
  std::int32_t steps_;
  Position length_;
  Rule rule_;
  bool compat_;
};

DecoderEntry fixed_share(std::string name, std::string meaning, Rule rule) {
  return declare_method<Decoder>(std::move(name), std::move(meaning), steps_rows(),
                                 [rule](const StepsOptions& options, const MethodContext& context) {
                                   return std::make_unique<Sdar>(DynamicOptions{{}, options}, context, rule);
                                 })
      .always({.distribution = ScoreDistribution::kSampled});
}

}  // namespace

DecoderEntry sdar_sequential_decoder() {
  return fixed_share("sdar-sequential", "a fixed number per step, from left to right (SDAR)", Rule::kSequential);
}

DecoderEntry sdar_static_decoder() {
  return fixed_share("sdar-static", "a fixed number per step, the most confident first (SDAR)", Rule::kStatic);
}

DecoderEntry sdar_dynamic_decoder() {
  return declare_method<Decoder>("sdar-dynamic",
                                 "positions that reach the threshold, at least the schedule's share (SDAR)",
                                 join_rows<DynamicOptions>(threshold_rows(), steps_rows()),
                                 [](const DynamicOptions& options, const MethodContext& context) {
                                   return std::make_unique<Sdar>(options, context, Rule::kDynamic);
                                 })
      .always({.distribution = ScoreDistribution::kSampled});
}

}  // namespace dllm
