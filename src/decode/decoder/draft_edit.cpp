// LLaDA2.1's draft-and-edit (dllm-reference B.10). Drafting: masked positions above the threshold are committed, the
// best one if there is none. Editing, in the same passes: a committed token of the window gives way to another
// prediction above
// --edit-threshold. When no mask is left the window goes on being edited, until a pass changes nothing,
// --max-post-steps such passes are made, or an edit would bring back a state that the finished window has had before:
// predictions that depend on each other can otherwise take turns for ever. Then the state at hand stays.
//
// With --max-post-steps 0 a window ends with its last mask. Prompt tokens and finished windows are never edited.
#include <algorithm>
#include <set>

#include "decode/decoder.h"

namespace dllm {
namespace {

class DraftEdit : public Decoder {
 public:
  explicit DraftEdit(const DecoderConfig& config) : config_(config) {}

  std::vector<Position> wanted(const DecodeContext& context) override { return generated_positions(context); }
  bool revises() const override { return true; }
  bool holds_window(const DecodeContext&) const override { return !settled_ && post_steps_ < config_.max_post_steps; }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> result = edits(context.canvas, candidates);
    if (context.canvas.masked_count(context.window) > 0) {
      settled_ = false;
      post_steps_ = 0;
      seen_.clear();
      const std::vector<Edit> drafted = drafts(context.canvas, candidates);
      result.insert(result.end(), drafted.begin(), drafted.end());
      return result;
    }
    ++post_steps_;
    std::vector<TokenId> state = tokens(context.canvas, candidates);
    seen_.insert(state);
    for (const Edit& edit : result)
      state[static_cast<std::size_t>(edit.position - candidates[0].position)] = edit.token;
    settled_ = seen_.contains(state);  // nothing changes, or the edits would lead back
    if (settled_) result.clear();
    return result;
  }

 private:
  std::vector<Edit> drafts(const Canvas& canvas, std::span<const Candidate> candidates) const {
    std::vector<Candidate> masked;
    std::vector<Edit> confident;
    for (const Candidate& candidate : candidates) {
      if (!canvas.masked(candidate.position)) continue;
      masked.push_back(candidate);
      if (candidate.eligible && candidate.confidence > config_.threshold) confident.push_back(commit(candidate));
    }
    if (!confident.empty()) return confident;
    return commit_best(masked, 1, [](const Candidate& candidate) { return candidate.log_odds; });
  }

  std::vector<Edit> edits(const Canvas& canvas, std::span<const Candidate> candidates) const {
    std::vector<Edit> result;
    for (const Candidate& candidate : candidates) {
      if (canvas.masked(candidate.position) || !candidate.eligible) continue;
      if (candidate.token == canvas.token(candidate.position) || !(candidate.confidence > config_.edit_threshold))
        continue;
      Edit edit = commit(candidate);
      edit.kind = EditKind::kRevise;
      result.push_back(edit);
    }
    return result;
  }

  static std::vector<TokenId> tokens(const Canvas& canvas, std::span<const Candidate> candidates) {
    std::vector<TokenId> result;
    for (const Candidate& candidate : candidates) result.push_back(canvas.token(candidate.position));
    return result;
  }

  DecoderConfig config_;
  bool settled_ = false;
  std::int32_t post_steps_ = 0;
  std::set<std::vector<TokenId>> seen_;  ///< of the window since its last mask went
};

}  // namespace

std::unique_ptr<Decoder> make_draft_edit_decoder(const DecoderConfig& config) {
  return std::make_unique<DraftEdit>(config);
}

}  // namespace dllm
