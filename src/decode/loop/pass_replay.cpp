#include "decode/loop/pass_replay.h"

#include <algorithm>
#include <utility>

#include "decode/decoder/reviser.h"

namespace dllm {
namespace {

class PassReplay final : public Decoder, public Reviser {
 public:
  PassReplay(std::unique_ptr<Decoder> own, std::vector<PassRecord> passes, const ModelDesc& desc)
      : own_(std::move(own)), reviser_(own_->reviser()), passes_(std::move(passes)), tokens_(desc) {}

  void configure(ScoreRequest& request) const override { own_->configure(request); }
  bool revises() const override { return true; }
  bool replays() const override { return true; }
  Reviser* reviser() override { return reviser_ == nullptr ? nullptr : this; }

  std::vector<Position> wanted(const DecodeContext& context) override {
    mask_ = context.canvas.mask();
    reviewed_ = shown_before(context.canvas, &PassRecord::reviewed, context.window.end);
    std::vector<Position> now = reviewed_;
    for (const Position p : own_->wanted(context))
      if (context.canvas.masked(p)) now.push_back(p);
    std::sort(now.begin(), now.end());
    return now;
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    if (reviser_ != nullptr) {
      for (const Position p : reviewed_) result.push_back({p, context.canvas.token(p)});
      return result;
    }
    for (const TokenQuery& query : own_->queries(context))
      if (context.canvas.masked(query.position) || reviews(query.position)) result.push_back(query);
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const std::size_t now = pass_++;
    return now < passes_.size() ? edits(context.canvas, passes_[now].changes, candidates) : std::vector<Edit>();
  }

  bool keeps_schedule() const override { return pass_ <= passes_.size(); }

  bool holds_window(const DecodeContext& context) const override {
    return pass_ < passes_.size() && passes_[pass_].held &&
           !shown_before(context.canvas, &PassRecord::reviewed, context.window.end).empty();
  }

  Position revisable_from(const DecodeContext& context, bool) const override { return first_revisable(context); }

  Position first_revisable(const DecodeContext& context) const override {
    if (pass_ > passes_.size()) return context.canvas.size();
    return context.canvas.prompt_end() + (pass_ == 0 ? 0 : passes_[pass_ - 1].settled);
  }

  std::optional<TokenId> shown(Position position) const override {
    return reviser_->hides_reviewed() && reviews(position) ? std::optional(mask_) : std::nullopt;
  }

  std::vector<Position> drain(const DecodeContext& context, Position end) override {
    mask_ = context.canvas.mask();
    reviewed_ = shown_before(context.canvas, &PassRecord::reviewed, end);
    return reviewed_;
  }

  bool hides_reviewed() const override { return reviser_->hides_reviewed(); }
  bool drains_fully() const override { return reviser_->drains_fully(); }
  std::optional<SecondPathOptions> second_path() const override { return reviser_->second_path(); }

  Refresh refresh(const DecodeContext& context) override {
    Refresh result = reviser_->refresh(context);  // how its rows are shown, and what they see
    result.positions = shown_before(context.canvas, &PassRecord::refreshed, context.window.begin);
    std::erase_if(result.positions, [this](Position p) { return reviews(p); });
    return result;
  }

  /// With a delay of 0, results are merged before the pass that launched them.
  std::vector<Edit> merge(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const bool before = second_path()->merge_delay == 0;
    if (!before && pass_ == 0) return {};
    const std::size_t at = before ? pass_ : pass_ - 1;
    return at < passes_.size() ? edits(context.canvas, passes_[at].merged, candidates) : std::vector<Edit>();
  }

 private:
  bool reviews(Position position) const { return std::binary_search(reviewed_.begin(), reviewed_.end(), position); }

  /// Positions of the next pass's record that have a token, up to `end`.
  std::vector<Position> shown_before(const Canvas& canvas, std::vector<std::int32_t> PassRecord::* list,
                                     Position end) const {
    std::vector<Position> result;
    if (pass_ >= passes_.size()) return result;
    for (const std::int32_t offset : passes_[pass_].*list) {
      const Position p = canvas.prompt_end() + offset;
      if (p < std::min(end, canvas.size()) && !canvas.masked(p)) result.push_back(p);
    }
    return result;
  }

  std::vector<Edit> edits(const Canvas& canvas, const std::vector<PassChange>& changes,
                          std::span<const Candidate> candidates) const {
    std::vector<Edit> result;
    for (const PassChange& change : changes) {
      const Position p = canvas.prompt_end() + change.position;
      if (p >= canvas.size() || canvas.masked(p) != (change.kind == PassChange::Kind::kCommit)) continue;
      const auto found = std::lower_bound(candidates.begin(), candidates.end(), p,
                                          [](const Candidate& one, Position q) { return one.position < q; });
      const bool predicted = found != candidates.end() && found->position == p;
      Edit edit{.position = p, .confidence = predicted ? found->confidence : 0};
      const TokenId token = predicted ? found->token : -1;
      switch (change.kind) {
        case PassChange::Kind::kCommit:
          edit.token = tokens_.choose(token, change.ends);
          break;
        case PassChange::Kind::kRevise:
          edit.kind = EditKind::kRevise;
          edit.token = tokens_.choose(token, change.ends, canvas.token(p));
          break;
        case PassChange::Kind::kRemask:
          edit.kind = EditKind::kRemask;
          edit.token = canvas.mask();
          break;
      }
      result.push_back(edit);
    }
    return result;
  }

  const std::unique_ptr<Decoder> own_;
  Reviser* const reviser_;  ///< of `own_`; null: it reviews no tokens before the window
  const std::vector<PassRecord> passes_;
  const ReplayTokens tokens_;
  std::vector<Position> reviewed_;  ///< by the pass being made
  std::size_t pass_ = 0;
  TokenId mask_ = -1;
};

}  // namespace

ReplayTokens::ReplayTokens(const ModelDesc& desc) : stop_ids_(desc.stop_ids), mask_(desc.mask) {
  TokenId next = 0;
  for (TokenId& one : ordinary_) {
    while (next == mask_ || stops(next)) ++next;
    one = next++;
  }
}

bool ReplayTokens::stops(TokenId token) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
}

TokenId ReplayTokens::choose(TokenId predicted, bool ends, TokenId current) const {
  if (predicted >= 0 && predicted != mask_ && predicted != current && stops(predicted) == ends) return predicted;
  if (!ends || stop_ids_.empty()) return ordinary_[ordinary_[0] == current ? 1 : 0];
  const auto other = std::find_if(stop_ids_.begin(), stop_ids_.end(), [current](TokenId id) { return id != current; });
  return other == stop_ids_.end() ? stop_ids_.front() : *other;
}

std::unique_ptr<Decoder> make_pass_replay(std::unique_ptr<Decoder> own, std::vector<PassRecord> passes,
                                          const ModelDesc& desc) {
  return std::make_unique<PassReplay>(std::move(own), std::move(passes), desc);
}

}  // namespace dllm
