// Early exit by entropy (diffuse-cpp, diffuse-rs): every position below the entropy threshold is committed at once, and
// a cosine or linear schedule commits the most certain of the others, so that a window ends after its steps at the
// latest. Both sets are chosen in ascending order of entropy, so their union is the larger of the two.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

enum class Schedule { kCosine, kLinear };

struct EntropyExitOptions : StepsOptions {
  double entropy_threshold = 1.5;
  Schedule schedule = Schedule::kCosine;
};

OptionRows<EntropyExitOptions> entropy_exit_rows() {
  using O = EntropyExitOptions;
  return join_rows<O>(
      steps_rows(), OptionRows<O>{
                        option("entropy_threshold", &O::entropy_threshold, 0, 1e6, "nats",
                               "commit positions of lower entropy at once"),
                        option("schedule", &O::schedule, {{"cosine", Schedule::kCosine}, {"linear", Schedule::kLinear}},
                               "how the commits are distributed over the steps"),
                    });
}

class EntropyExit : public Decoder {
 public:
  EntropyExit(const EntropyExitOptions& config, const MethodContext& context)
      : config_(config), steps_(config.steps_of(context)), length_(context.length) {}

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const auto masks = static_cast<Position>(candidates.size());
    const std::int32_t steps = window_steps(steps_, length_, context.window_masks_at_start);
    std::size_t sure = 0;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.entropy < config_.entropy_threshold) ++sure;
    const std::size_t count = std::max(sure, quota(masks, context.window_step, steps));
    return commit_best(candidates, count, [](const Candidate& candidate) { return -candidate.entropy; });
  }

 private:
  /// Positions to commit, given `masks` left before step `t` of `steps`; at least 1.
  std::size_t quota(Position masks, std::int32_t t, std::int32_t steps) const {
    const double share = config_.schedule == Schedule::kCosine ? cosine_share(t, steps) : 1.0 / std::max(1, steps - t);
    return static_cast<std::size_t>(std::max(1L, std::lround(share * masks)));
  }

  /// The masked fraction follows a quarter of a cosine: slow at first, when little is known.
  static double cosine_share(std::int32_t t, std::int32_t steps) {
    if (t + 1 >= steps) return 1.0;
    const double quarter = std::numbers::pi / (2.0 * steps);
    return 1.0 - std::cos(quarter * (t + 1)) / std::cos(quarter * t);
  }

  EntropyExitOptions config_;
  std::int32_t steps_;
  Position length_;
};

}  // namespace

DecoderEntry entropy_exit_decoder() {
  return declare_method<Decoder>("entropy-exit", "a schedule that commits positions of low entropy early",
                                 entropy_exit_rows(),
                                 [](const EntropyExitOptions& options, const MethodContext& context) {
                                   return std::make_unique<EntropyExit>(options, context);
                                 });
}

}  // namespace dllm
