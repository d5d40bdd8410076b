// LLaDA2.1's draft-and-edit (arXiv 2602.08676). Drafting: masked positions above the threshold are committed, or the
// best --num-to-transfer if they are fewer. Editing, in the same passes: a committed token of the window is replaced by
// another prediction above --edit-threshold. When no mask is left, the window is edited until a pass changes nothing,
// or
// --max-post-steps such passes were made, or an edit would restore an earlier state of the finished window: otherwise
// predictions that depend on each other could alternate forever. In that case the current state is kept.
// With --max-post-steps 0 a window ends with its last mask. Prompt tokens are never edited; finished windows are only
// with --edit-blocks (multi-block editing, arXiv 2607.22663), which also scores and edits that many of the latest ones.
//
// Under --compat (the generate() of LLaDA2.1's modeling code) the mask is a prediction like any other. A masked
// position whose prediction is the mask stays masked and wastes its commit; a token whose prediction is the mask
// becomes a mask. Passes after the last mask are counted per window, not from the last mask on, and only this count
// ends an alternation.
#include <algorithm>
#include <set>

#include "base/to_size.h"
#include "decode/decoder/edit_rows.h"
#include "decode/decoder/previous_token_penalty.h"
#include "decode/decoder/seen_states.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct DraftEditOptions : EditOptions {
  std::int32_t edit_blocks = 0;
  double penalty_lambda = 0;
  std::int32_t num_to_transfer = 1;
};

OptionRows<DraftEditOptions> draft_edit_rows() {
  using O = DraftEditOptions;
  return join_rows<O>(edit_rows(),
                      OptionRows<O>{
                          option("edit_blocks", &O::edit_blocks, 0, kMostPositions, "blocks",
                                 "finished blocks before the current one that are edited too (multi-block editing)"),
                          option("penalty_lambda", &O::penalty_lambda, 0, 1e3, "",
                                 "subtracted from the logit of the previous position's token, against repetition"),
                          option("num_to_transfer", &O::num_to_transfer, 1, kMostPositions, "tokens",
                                 "commit so many masks per pass at least, even below the threshold (LLaDA2.1)"),
                      });
}

class DraftEdit : public Decoder {
 public:
  DraftEdit(const DraftEditOptions& config, bool compat)
      : config_(config), compat_(compat), penalty_(config.penalty_lambda) {}

  void configure(ScoreRequest& request) const override { penalty_.configure(request); }

  std::vector<Position> wanted(const DecodeContext& context) override {
    enter(context.window);
    std::vector<Position> result;
    for (Position p = std::max(first_editable(config_.edit_blocks), context.canvas.prompt_end());
         p < context.window.end; ++p)
      result.push_back(p);
    return result;
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    return penalty_.queries(context, wanted(context));
  }

  bool revises() const override { return true; }
  bool keeps_schedule() const override { return compat_ && !repeated_; }
  bool holds_window(const DecodeContext&) const override { return !settled_ && post_steps_ < config_.max_post_steps; }

  Position revisable_from(const DecodeContext& context, bool open) const override {
    if (config_.edit_blocks == 0 || begins_.empty()) return Decoder::revisable_from(context, open);
    if (open) return first_editable(config_.edit_blocks);
    // Between two windows: the next window leaves at least one of those that this one could edit.
    return context.canvas.masked_count() == 0 ? context.canvas.size() : first_editable(config_.edit_blocks - 1);
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> given) override {
    const std::vector<Candidate> penalized = penalty_.apply(context, given, /*mask_competes=*/compat_);
    const std::span<const Candidate> candidates = penalty_.on() ? std::span(penalized) : given;
    std::vector<Edit> result = edits(context, candidates);
    if (context.canvas.masked_count(context.window) == 0) {
      post_edit(context.canvas, candidates, result);
      return result;
    }
    if (!compat_) post_steps_ = 0;
    settled_ = false;
    seen_.clear();
    const std::vector<Edit> drafted = draft_edits(context.canvas, candidates);
    result.insert(result.end(), drafted.begin(), drafted.end());
    repeated_ = compat_ && states_.repeats(context, result);
    return result;
  }

 private:
  /// Records a new window; under a sliding window every new begin counts as a window.
  void enter(const PositionRange& window) {
    if (!begins_.empty() && begins_.back() == window.begin) return;
    begins_.push_back(window.begin);
    settled_ = false;
    post_steps_ = 0;
    seen_.clear();
  }

  /// The begin of the window that many before the current one, or of the first.
  Position first_editable(std::int32_t before) const {
    return begins_[begins_.size() - std::min(to_size(before) + 1, begins_.size())];
  }

  /// A pass over a window without masks.
  void post_edit(const Canvas& canvas, std::span<const Candidate> candidates, std::vector<Edit>& result) {
    ++post_steps_;
    if (compat_) {
      states_.forget();  // from here on passes are counted
      settled_ = result.empty();
      return;
    }
    std::vector<TokenId> state = tokens(canvas, candidates);
    seen_.insert(state);
    for (const Edit& edit : result) state[to_size(edit.position - candidates[0].position)] = edit.token;
    settled_ = seen_.contains(state);  // no change, or the edits would repeat a state
    if (settled_) result.clear();
  }

  std::vector<Edit> draft_edits(const Canvas& canvas, std::span<const Candidate> candidates) const {
    std::vector<Candidate> masked;
    std::vector<Edit> confident;
    for (const Candidate& candidate : candidates) {
      if (!canvas.masked(candidate.position)) continue;
      masked.push_back(candidate);
      if (candidate.eligible && candidate.confidence > config_.threshold) confident.push_back(commit(candidate));
    }
    const auto least = to_size(config_.num_to_transfer);
    if (confident.size() >= least) return confident;
    return commit_best(masked, least, [](const Candidate& candidate) { return candidate.log_odds; });
  }

  std::vector<Edit> edits(const DecodeContext& context, std::span<const Candidate> candidates) const {
    std::vector<Edit> result;
    for (const Candidate& candidate : candidates) {
      if (context.canvas.masked(candidate.position) || !candidate.eligible) continue;
      if (candidate.token == context.canvas.token(candidate.position) ||
          !(candidate.confidence > config_.edit_threshold))
        continue;
      Edit edit = commit(candidate);
      edit.kind = EditKind::kRevise;
      if (candidate.token == context.canvas.mask()) {
        // A mask in a finished window would reopen it, after the current one has begun.
        if (!context.window.contains(candidate.position)) continue;
        edit.kind = EditKind::kRemask;
      }
      result.push_back(edit);
    }
    return result;
  }

  static std::vector<TokenId> tokens(const Canvas& canvas, std::span<const Candidate> candidates) {
    std::vector<TokenId> result;
    for (const Candidate& candidate : candidates) result.push_back(canvas.token(candidate.position));
    return result;
  }

  DraftEditOptions config_;
  bool compat_;
  PreviousTokenPenalty penalty_;
  std::vector<Position> begins_;  ///< of all windows so far
  bool settled_ = false;
  bool repeated_ = false;
  std::int32_t post_steps_ = 0;
  std::set<std::vector<TokenId>> seen_;  ///< states of the window since its last mask
  SeenStates states_;                    ///< while it has masks; under compat
};

}  // namespace

DecoderEntry draft_edit_decoder() {
  return declare_method<Decoder>("draft-edit", "the threshold rule, then edits of the block's tokens (LLaDA2.1)",
                                 draft_edit_rows(),
                                 [](const DraftEditOptions& options, const MethodContext& context) {
                                   return std::make_unique<DraftEdit>(options, context.compat);
                                 })
      .depending_on(draft_edit_rows(), [](const DraftEditOptions& options) {
        return MethodTraits{.revises = true, .commits_other = options.penalty_lambda > 0};
      });
}

}  // namespace dllm
