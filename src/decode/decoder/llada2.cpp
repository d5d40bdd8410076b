// LLaDA2.0's block sampler (arXiv 2512.15745): commits all positions above the threshold if they are at least this
// step's share of the schedule; otherwise the share, most confident first. The schedule spreads the block's full length
// over its steps, so a block that begins in the prompt ends early. Upstream ends after the last step even with masks
// left; here the rest is committed one by one.
//
// Under --compat (the generate() of LLaDA2.0's modeling code) --steps counts the passes of one block, and the mask is a
// prediction like any other: committing it wastes a place. Masks left by the last pass stay.
#include <algorithm>

#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct Llada2Options : ThresholdOptions, StepsOptions {};

class Llada2 : public Decoder {
 public:
  Llada2(const Llada2Options& options, const MethodContext& context)
      : threshold_(options.threshold),
        steps_(options.steps_of(context)),
        length_(context.length),
        compat_(context.compat) {}

  bool keeps_schedule() const override { return compat_; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const Position length = context.window.end - context.window.begin;
    const std::int32_t steps = compat_ ? std::max(1, steps_) : window_steps(steps_, length_, length);
    const auto t = to_size(context.window_step);
    const auto schedule = transfer_schedule(length, steps);
    const auto share = to_size(t < schedule.size() ? schedule[t] : 1);

    std::vector<Edit> result;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.confidence > threshold_) result.push_back(commit(candidate));
    if (result.size() < share)
      result = commit_best(candidates, share, [](const Candidate& candidate) { return candidate.log_odds; });
    if (compat_ && context.window_step + 1 >= steps) leave_the_rest(context.canvas, candidates, result);
    return result;
  }

 private:
  double threshold_;
  std::int32_t steps_;
  Position length_;
  bool compat_;
};

}  // namespace

DecoderEntry llada2_decoder() {
  return declare_method<Decoder>("llada2", "positions above the threshold, at least the schedule's share (LLaDA2.0)",
                                 join_rows<Llada2Options>(threshold_rows(), steps_rows()),
                                 [](const Llada2Options& options, const MethodContext& context) {
                                   return std::make_unique<Llada2>(options, context);
                                 });
}

}  // namespace dllm
