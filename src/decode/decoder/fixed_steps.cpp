// LLaDA's samplers with a fixed number of steps per block (arXiv 2502.09992): step t commits n[t] positions, the most
// confident ones (low-confidence remasking) or random ones.
#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

enum class Ranking { kConfidence, kRandom };

class FixedSteps : public Decoder {
 public:
  FixedSteps(const StepsOptions& options, const MethodContext& context, Ranking ranking)
      : steps_(options.steps_of(context)), length_(context.length), ranking_(ranking) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const auto count = to_size(counts(context, 1).front());
    return commit_best(candidates, count, [&](const Candidate& candidate) {
      if (ranking_ == Ranking::kConfidence) return candidate.log_odds;
      return uniform01(context.rng, RngPurpose::kConfidence, context.step,
                       static_cast<std::uint32_t>(candidate.position));
    });
  }

  std::optional<CommitRule> rule(const DecodeContext& context, std::int32_t passes) const override {
    if (ranking_ != Ranking::kConfidence) return std::nullopt;
    CommitRule rule;
    rule.counts = counts(context, passes);
    return rule;
  }

 private:
  /// Of so many steps from the present one on.
  std::vector<std::int32_t> counts(const DecodeContext& context, std::int32_t passes) const {
    const std::int32_t masks = context.window_masks_at_start;
    const std::int32_t steps = window_steps(steps_, length_, masks);
    const auto schedule = transfer_schedule(masks, steps);
    // Steps can run out with masks left if some predictions were masks; the rest is committed one by one.
    std::vector<std::int32_t> counts;
    for (std::int32_t step = context.window_step; step < context.window_step + passes; ++step)
      counts.push_back(step < steps ? schedule[to_size(step)] : 1);
    return counts;
  }

  std::int32_t steps_;
  Position length_;
  Ranking ranking_;
};

}  // namespace

DecoderEntry low_confidence_decoder() {
  return declare_method<Decoder>("low-confidence", "a fixed number per step, the most confident first (LLaDA)",
                                 steps_rows(),
                                 [](const StepsOptions& options, const MethodContext& context) {
                                   return std::make_unique<FixedSteps>(options, context, Ranking::kConfidence);
                                 })
      .alias("4")
      .standard_for("for autoregressive models",
                    [](const ModelDesc& desc) { return !desc.mask && desc.modes.empty(); });
}

DecoderEntry random_decoder() {
  return declare_method<Decoder>("random", "a fixed number per step, at random positions (LLaDA)", steps_rows(),
                                 [](const StepsOptions& options, const MethodContext& context) {
                                   return std::make_unique<FixedSteps>(options, context, Ranking::kRandom);
                                 })
      .alias("3");
}

}  // namespace dllm
