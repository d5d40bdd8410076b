// Progressive revision (llada.cpp's dual-path progressive revision; dllm-reference D.2, D.4, D.7). A generated position
// is invisible (a mask), visible (shown to the model, and looked at again) or stable (shown, never looked at again, and
// so without logits: selective logits skipping). A prediction at or above the stable threshold makes a mask stable, one
// at or above the visible threshold visible; if a pass has neither, the surest mask of the window becomes visible.
//
// A visible token is judged by its own probability with the token in the input (A7 "self"). It becomes stable at the
// stable threshold, or gives way to a token of the visible threshold that is likelier (A14). Inside the window that
// happens in every pass. Behind the window up to `refresh_rows` visible tokens are forwarded and scored with each pass,
// folded into its batch: the scattered rows share the weights' stream, so on a machine without a second processor this
// beats a second path. Their K/V are made anew on the way.
//
// With leave_one_out a looked-at row shows the mask instead, which is what the model was trained on: the token is
// judged by what the others say. Its K/V are then a mask's until the next pass mends them, and tokens inside the window
// are not looked at. In one pass all looked-at rows are left out together.
//
// A token that changes may have misled those that were given after it, final ones too: with `reopen` they are visible
// again.
//
// When no mask is left, up to `drain_rounds` more passes look at everything visible; then it is accepted.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "decode/decoder.h"

namespace dllm {
namespace {

class Revision : public Decoder {
 public:
  explicit Revision(const DecoderConfig& config) : config_(config) {}

  bool greedy() const override { return true; }
  bool revises() const override { return true; }
  bool drains() const override { return true; }

  std::vector<Position> wanted(const DecodeContext& context) override {
    mask_ = context.canvas.mask();
    draining_ = false;
    refreshed_ =
        config_.second_path ? std::vector<Position>() : refresh_set(context.window.begin, config_.refresh_rows);
    std::vector<Position> now = Decoder::wanted(context);
    for (const auto& [position, state] : visible_)
      if (looks_inside(context, position)) now.push_back(position);
    now.insert(now.end(), refreshed_.begin(), refreshed_.end());
    std::sort(now.begin(), now.end());
    return now;
  }

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    for (const auto& [position, state] : visible_)
      if (looks_at(context, position)) result.push_back({position, context.canvas.token(position)});
    return result;
  }

  std::optional<TokenId> shown(Position position) const override {
    if (!config_.leave_one_out || !std::binary_search(refreshed_.begin(), refreshed_.end(), position))
      return std::nullopt;
    return mask_;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits;
    const Candidate* surest = nullptr;
    bool promoted = false, masks = false;
    ++pass_;
    for (const Candidate& candidate : candidates) {
      if (!context.canvas.masked(candidate.position)) {
        look_again(context, candidate, edits);
        continue;
      }
      masks = true;
      if (!candidate.eligible) continue;
      if (!surest || candidate.log_odds > surest->log_odds) surest = &candidate;
      if (candidate.confidence >= std::min(config_.visible_threshold, config_.stable_threshold)) {
        promote(candidate, edits);
        promoted = true;
      }
    }
    if (masks && !promoted && surest) promote(*surest, edits);
    last_pass_changed_ = !edits.empty();
    return edits;
  }

  Refresh refresh(const DecodeContext& context) override {
    if (!config_.second_path) return {};
    return {refresh_set(context.window.begin, config_.refresh_rows), config_.leave_one_out,
            config_.refresh_sees_window};
  }

  std::vector<Edit> merge(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates) look_again(context, candidate, edits);
    return edits;
  }

  Position revisable_from(const DecodeContext& context) const override {
    return visible_.empty() ? context.canvas.size() : visible_.begin()->first;
  }

  std::vector<Position> drain(const DecodeContext& context, Position end) override {
    mask_ = context.canvas.mask();
    std::vector<Position> open;
    for (const auto& [position, state] : visible_)
      if (position < end) open.push_back(position);
    // A round over everything that changed nothing would be followed by one that sees the same.
    const bool again = drained_ == 0 || last_pass_changed_ || config_.drain_rows > 0;
    if (!open.empty() && again && drained_ < config_.drain_rounds) {
      ++drained_;
      draining_ = true;
      refreshed_ = refresh_set(end, config_.drain_rows > 0 ? config_.drain_rows : end);
      return refreshed_;
    }
    for (Position position : open) visible_.erase(position);
    draining_ = false;
    return {};
  }

 private:
  struct State {
    double confidence = 0;
    std::int32_t revisions = 0;
    std::int64_t looked = 0;  ///< pass of the last look; order of refreshes
    bool dirty = false;       ///< another token since its K/V were made
    std::int64_t since = 0;   ///< pass that gave the token
  };

  /// Inside the window a token is context for its neighbours: showing its mask would take that away.
  bool looks_inside(const DecodeContext& context, Position position) const {
    return !config_.leave_one_out && context.window.contains(position);
  }

  bool looks_at(const DecodeContext& context, Position position) const {
    return std::binary_search(refreshed_.begin(), refreshed_.end(), position) ||
           (!draining_ && looks_inside(context, position));
  }

  bool sooner(const State& a, const State& b) const {
    if (config_.refresh_order == RefreshOrder::kPosition) return false;
    if (config_.refresh_order == RefreshOrder::kUnsure) return a.confidence < b.confidence;
    if (a.dirty != b.dirty) return a.dirty;
    if (a.looked != b.looked) return a.looked < b.looked;
    return a.confidence < b.confidence;
  }

  /// Of the visible tokens in front of `end`, at most `rows` to look at now. That something has changed since the last
  /// look (A10) need not be asked: every pass over masks commits something, and attention reaches everywhere.
  std::vector<Position> refresh_set(Position end, std::int32_t rows) const {
    std::vector<std::pair<Position, State>> behind;
    for (const auto& entry : visible_)
      if (entry.first < end) behind.push_back(entry);
    std::stable_sort(behind.begin(), behind.end(),
                     [this](const auto& a, const auto& b) { return sooner(a.second, b.second); });
    const auto most = static_cast<std::size_t>(rows);
    if (behind.size() > most) behind.resize(most);
    std::vector<Position> result;
    for (const auto& [position, state] : behind) result.push_back(position);
    std::sort(result.begin(), result.end());
    return result;
  }

  void promote(const Candidate& candidate, std::vector<Edit>& edits) {
    edits.push_back(commit(candidate));
    const bool shown = candidate.confidence >= std::min(config_.visible_threshold, config_.stable_threshold);
    const State state{candidate.confidence, remasked_[candidate.position], pass_, true, pass_};
    const bool open = candidate.confidence < config_.stable_threshold && (shown || !config_.force_stable);
    (open ? visible_ : final_)[candidate.position] = state;
  }

  void look_again(const DecodeContext& context, const Candidate& candidate, std::vector<Edit>& edits) {
    const auto found = visible_.find(candidate.position);
    if (found == visible_.end() || candidate.token < 0 || candidate.queried.empty()) return;
    State& state = found->second;
    state.looked = pass_;
    state.dirty = false;
    // Both probabilities belong to one softmax.
    const double own = candidate.confidence *
                       std::exp(static_cast<double>(candidate.queried[0]) - static_cast<double>(candidate.logit));
    const bool other = candidate.eligible && candidate.token != context.canvas.token(candidate.position);
    const double enough = config_.revise_threshold > 0 ? config_.revise_threshold : config_.visible_threshold;
    if (other && candidate.confidence >= enough && candidate.confidence > own &&
        state.revisions < config_.max_revisions) {
      Edit edit = commit(candidate);
      edit.kind = EditKind::kRevise;
      edits.push_back(edit);
      const std::int64_t since =
          std::exchange(state, {candidate.confidence, state.revisions + 1, pass_, true, pass_}).since;
      if (config_.reopen) reopen(since);
      return;
    }
    state.confidence = own;
    if (own >= config_.stable_threshold) {
      final_[candidate.position] = state;
      visible_.erase(found);
    } else if (config_.remask_visible && context.window.contains(candidate.position) &&
               own < config_.remask_threshold && state.revisions < config_.max_revisions) {
      // Counted as a revision where it returns, or the position could come and go for ever.
      remasked_[candidate.position] = state.revisions + 1;
      edits.push_back({candidate.position, mask_, EditKind::kRemask, own});
      visible_.erase(found);
    }
  }

  /// What was given after a token that has now changed may have been read off it: it becomes visible again. Ends,
  /// because each change counts as a revision of its position.
  void reopen(std::int64_t since) {
    for (auto it = final_.begin(); it != final_.end();) {
      const bool later = it->second.since > since;
      if (later) visible_.insert(*it);
      it = later ? final_.erase(it) : std::next(it);
    }
  }

  DecoderConfig config_;
  std::map<Position, State> visible_;
  std::map<Position, State> final_;  ///< stable tokens
  std::map<Position, std::int32_t> remasked_;
  std::vector<Position> refreshed_;  ///< looked at behind the window in this pass
  TokenId mask_ = -1;
  std::int64_t pass_ = 0;
  std::int32_t drained_ = 0;
  bool draining_ = false, last_pass_changed_ = false;
};

}  // namespace

std::unique_ptr<Decoder> make_revision_decoder(const DecoderConfig& config) {
  return std::make_unique<Revision>(config);
}

}  // namespace dllm
