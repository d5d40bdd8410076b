// What a backend that runs several passes in a row is told of those after the coming one.
#include <optional>
#include <utility>

#include "decode/loop/denoiser.h"

namespace dllm {

/// Only where the next canvas follows from the predictions and the decoder's rule alone: not where masks remember their
/// predictions, drafts are shown, an answer grows or a structure guides. Nor before a unit's first pass, which may have
/// other rows than those after it.
std::optional<CommitRule> Denoiser::commit_rule(bool first_of_unit) const {
  if (first_of_unit || pass_.idle || pass_.draining || pass_.fills || without_mask_ || unconditional_ != nullptr ||
      options_.compat || !options_.branches.empty() || options_.penalties.on() || options_.second.runner != nullptr ||
      soft_masks_.on() || guide_.on() || growth_.on() || !drafts_.empty() || planner_.keeps_front())
    return std::nullopt;
  const PositionRange window = cursor_.range();
  const bool own_rows = desc_.logit_shift == 0 || window.begin >= desc_.logit_shift;
  const bool asks_more = !pass_.queries.empty() || !pass_.shadowed.empty() || !pass_.also_scored.empty();
  if (pass_.decided != pass_.wanted.size() || asks_more || !own_rows || decoder_->revises() || decoder_->replays())
    return std::nullopt;
  std::optional<CommitRule> rule = decoder_->rule(context(), unrolling_->most_passes());
  if (!rule) return rule;
  rule->passes = unrolling_->most_passes();
  rule->shift = desc_.logit_shift;
  if (options_.exact_length) return rule;
  rule->stops = options_.stop_ids;
  rule->first_stop = stop_rule_.first(canvas_, canvas_.size());
  return rule;
}

}  // namespace dllm
