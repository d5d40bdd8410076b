// Progressive revision (llada.cpp's dual-path progressive revision, arXiv 2606.13740). A generated position is
// invisible (a mask), visible (shown to the model, and reviewed) or stable (shown, no longer reviewed, and so without
// logits: selective logits skipping). A prediction at or above the stable threshold makes a mask stable, one at or
// above the visible threshold makes it visible; if a pass has neither, the most certain mask of the window becomes
// visible.
//
// A visible token is judged by its own probability with the token in the input. It becomes stable at the stable
// threshold, or is replaced by a likelier token that reaches the visible threshold. Inside the window every pass does
// this. With run_threshold, the best of each run of neighbouring masks is shown too if its confidence exceeds that: the
// rule by which hierarchical decoding commits (dInfer, arXiv 2510.08666), here for drafts that are reviewed. Before the
// window, up to `refresh_rows` visible tokens are forwarded and scored with each pass, as part of its
// batch: the scattered rows share the weights' stream, so without a second processor this is faster than a second path.
// It also recomputes their K/V.
//
// With leave_one_out a reviewed row shows the mask instead, as in training: the token is judged by what the others
// predict. Its K/V are then a mask's until the next pass recomputes them, and tokens inside the window are not
// reviewed. All rows reviewed in one pass are masked together.
//
// A token that changes may have misled those committed after it, final ones too: `reopen` makes them visible
// again.
//
// When no mask is left, up to `drain_rounds` more passes review all visible tokens; then the answer is accepted.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/to_size.h"
#include "decode/decoder/reviser.h"
#include "decode/registry.h"

namespace dllm {
namespace {

enum class LookPath { kFolded, kSecond };

/// Which visible tokens before the window are reviewed first.
enum class RefreshOrder {
  kStale,     ///< changed ones, then the least recently reviewed, then the least certain
  kUnsure,    ///< the least certain
  kPosition,  ///< the first
};

enum class RefreshSees { kAll, kPrefix };

struct RevisionOptions : SecondPathOptions {
  double visible_threshold = 0.7, stable_threshold = 0.9;
  std::optional<double> revise_threshold, run_threshold;
  std::int32_t refresh_rows = 8, max_revisions = 3;
  RefreshOrder refresh_order = RefreshOrder::kStale;
  bool force_stable = false, reopen = false, leave_one_out = false, remask_visible = false;
  double remask_threshold = 0.4;
  std::int32_t drain_rounds = 2;
  std::optional<std::int32_t> drain_rows;
  bool drain_full = false;
  LookPath refresh_path = LookPath::kFolded;
  RefreshSees refresh_sees = RefreshSees::kAll;

  bool second() const { return refresh_path == LookPath::kSecond && refresh_rows > 0; }
};

OptionRows<RevisionOptions> revision_state_rows() {
  using O = RevisionOptions;
  const auto revises = [](const O& o) { return o.max_revisions > 0; };
  const std::string when = "with --max-revisions above 0";
  return {
      option("visible_threshold", &O::visible_threshold, 0, 2, "",
             "confidence from which a token is shown; it is scored again until it is final")
          .checked([](const O& o, const ModelDesc&) -> Expected<void> {
            if (o.visible_threshold <= o.stable_threshold) return {};
            return Error{ErrorCode::kUsage, "a token would be final before it is shown", "",
                         "give one at or below --stable-threshold"};
          }),
      option("stable_threshold", &O::stable_threshold, 0, 2, "", "confidence from which a token is final"),
      option("run_threshold", &O::run_threshold, 0, 2, "",
             "show the best of each run of neighbouring masks above this confidence too")
          .otherwise("none"),
      option("revise_threshold", &O::revise_threshold, 0, 2, "",
             "confidence from which a likelier token replaces a visible one")
          .otherwise("--visible-threshold", [](const O& o, const ModelDesc&,
                                               const MethodContext&) { return OptionValue(o.visible_threshold); })
          .only(when, revises),
      option("max_revisions", &O::max_revisions, 0, kMostInteger, "", "maximum number of token changes per position"),
      option("force_stable", &O::force_stable,
             "if no token reaches a threshold, the most confident one becomes final instead of visible"),
      option("reopen", &O::reopen, "when a token changes, final tokens decided after it become visible again")
          .only(when, revises),
      option("leave_one_out", &O::leave_one_out, "tokens before the window are scored with the mask in their place"),
      option("remask_visible", &O::remask_visible,
             "visible tokens of the window below --remask-threshold become masks again")
          .only(when, revises)
          .checked([](const O& o, const ModelDesc&) -> Expected<void> {
            if (!o.remask_visible || !o.leave_one_out) return {};
            return Error{ErrorCode::kUsage, "under --leave-one-out no token of the window is scored again", "",
                         "leave one of the two out"};
          }),
      option("remask_threshold", &O::remask_threshold, 0, 1, "",
             "probability below which a visible token becomes a mask again")
          .only("with --remask-visible", [](const O& o) { return o.remask_visible && o.max_revisions > 0; }),
  };
}

OptionRows<RevisionOptions> revision_look_rows() {
  using O = RevisionOptions;
  const auto second = [](const O& o) { return o.second(); };
  const auto drains = [](const O& o) { return o.drain_rounds > 0; };
  const auto looks = [](const O& o) { return o.refresh_rows > 0; };
  return {
      option("refresh_rows", &O::refresh_rows, 0, kMostPositions, "rows",
             "visible tokens before the window that each pass scores again; 0: none"),
      option(
          "refresh_order", &O::refresh_order,
          {{"stale", RefreshOrder::kStale}, {"unsure", RefreshOrder::kUnsure}, {"position", RefreshOrder::kPosition}},
          "which of them first: changed and longest unscored, the least confident, or the leftmost")
          .only("with --refresh-rows above 0, or with --drain-rows",
                [](const O& o) { return o.refresh_rows > 0 || (o.drain_rounds > 0 && o.drain_rows.has_value()); }),
      option("refresh_path", &O::refresh_path, {{"folded", LookPath::kFolded}, {"second", LookPath::kSecond}},
             "score them in the window's pass, or concurrently on separate threads")
          .only("with --refresh-rows above 0", looks)
          .checked([](const O& o, const ModelDesc& desc) -> Expected<void> {
            if (!o.second() || desc.causal_block == 0) return {};
            return Error{ErrorCode::kUsage, "rows of finished blocks never see anything new in this model", "",
                         "leave the option out"};
          }),
      option("refresh_sees", &O::refresh_sees, {{"all", RefreshSees::kAll}, {"prefix", RefreshSees::kPrefix}},
             "what they attend to on the second path: everything, or only what precedes the window")
          .only("with --refresh-path second", second),
      option("drain_rounds", &O::drain_rounds, 0, kMostInteger, "passes",
             "passes that score visible tokens again when no mask is left"),
      option("drain_rows", &O::drain_rows, 1, kMostPositions, "rows",
             "visible tokens scored by each of these last passes")
          .otherwise("all visible ones")
          .only("with --drain-rounds above 0", drains),
      option("drain_full", &O::drain_full, "these passes recompute every row (--cache prefix, dual, vicinity)")
          .only("with --drain-rounds above 0", drains),
  };
}

OptionRows<RevisionOptions> revision_rows() {
  using O = RevisionOptions;
  return join_rows<O>(revision_state_rows(), revision_look_rows(),
                      rows_only<O>(join_rows<O>(second_path_rows()), "with --refresh-path second",
                                   [](const O& o) { return o.second(); }));
}

class Revision : public Decoder, public Reviser {
 public:
  explicit Revision(const RevisionOptions& config) : config_(config) {}

  bool revises() const override { return true; }
  Reviser* reviser() override { return this; }
  bool hides_reviewed() const override { return config_.leave_one_out; }
  bool drains_fully() const override { return config_.drain_full; }
  std::optional<SecondPathOptions> second_path() const override {
    return config_.second() ? std::optional<SecondPathOptions>(config_) : std::nullopt;
  }

  std::vector<Position> wanted(const DecodeContext& context) override {
    mask_ = context.canvas.mask();
    draining_ = false;
    refreshed_ = config_.second() ? std::vector<Position>() : refresh_set(context.window.begin, config_.refresh_rows);
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
    const std::vector<const Candidate*> drafts = best_of_runs(context, candidates);
    auto next_draft = drafts.begin();  // in the order of the candidates
    for (const Candidate& candidate : candidates) {
      if (!context.canvas.masked(candidate.position)) {
        look_again(context, candidate, edits);
        continue;
      }
      masks = true;
      if (!candidate.eligible) continue;
      if (!surest || candidate.log_odds > surest->log_odds) surest = &candidate;
      const bool draft = next_draft != drafts.end() && *next_draft == &candidate;
      if (draft) ++next_draft;
      if (draft || reaches_visible(candidate)) {
        promote(candidate, edits, draft);
        promoted = true;
      }
    }
    if (masks && !promoted && surest) promote(*surest, edits, /*draft=*/false);
    last_pass_changed_ = !edits.empty();
    return edits;
  }

  Refresh refresh(const DecodeContext& context) override {
    if (!config_.second()) return {};
    return {refresh_set(context.window.begin, config_.refresh_rows), config_.leave_one_out,
            config_.refresh_sees == RefreshSees::kAll};
  }

  std::vector<Edit> merge(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Edit> edits;
    for (const Candidate& candidate : candidates) look_again(context, candidate, edits);
    return edits;
  }

  Position first_revisable(const DecodeContext& context) const override {
    return visible_.empty() ? context.canvas.size() : visible_.begin()->first;
  }

  std::vector<Position> drain(const DecodeContext& context, Position end) override {
    mask_ = context.canvas.mask();
    std::vector<Position> open;
    for (const auto& [position, state] : visible_)
      if (position < end) open.push_back(position);
    // If a round over all tokens changed nothing, the next one would see the same.
    const bool again = drained_ == 0 || last_pass_changed_ || config_.drain_rows.has_value();
    if (!open.empty() && again && drained_ < config_.drain_rounds) {
      ++drained_;
      draining_ = true;
      refreshed_ = refresh_set(end, config_.drain_rows.value_or(end));
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
    std::int64_t looked = 0;  ///< pass of the last review; orders refreshes
    bool dirty = false;       ///< the token has changed since its K/V were computed
    std::int64_t since = 0;   ///< pass that committed the token
  };

  /// Inside the window a token is context for its neighbours; showing its mask would remove that.
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

  /// Up to `rows` visible tokens before `end` to review now. We need not check whether anything has changed since the
  /// last review: every pass over masks commits something, and attention reaches everywhere.
  std::vector<Position> refresh_set(Position end, std::int32_t rows) const {
    std::vector<std::pair<Position, State>> behind;
    for (const auto& entry : visible_)
      if (entry.first < end) behind.push_back(entry);
    std::stable_sort(behind.begin(), behind.end(),
                     [this](const auto& a, const auto& b) { return sooner(a.second, b.second); });
    const auto most = to_size(rows);
    if (behind.size() > most) behind.resize(most);
    std::vector<Position> result;
    for (const auto& [position, state] : behind) result.push_back(position);
    std::sort(result.begin(), result.end());
    return result;
  }

  bool reaches_visible(const Candidate& candidate) const {
    return candidate.confidence >= std::min(config_.visible_threshold, config_.stable_threshold);
  }

  /// Of each run of neighbouring masks, the surest candidate if it exceeds the threshold for runs.
  std::vector<const Candidate*> best_of_runs(const DecodeContext& context,
                                             std::span<const Candidate> candidates) const {
    std::vector<const Candidate*> chosen;
    if (!config_.run_threshold) return chosen;
    const Candidate* best = nullptr;
    Position last = -1;  // of the run's masks
    const auto end_run = [&] {
      if (best && best->confidence > *config_.run_threshold) chosen.push_back(best);
      best = nullptr;
    };
    for (const Candidate& candidate : candidates) {
      if (!context.canvas.masked(candidate.position)) continue;
      if (candidate.position != last + 1) end_run();
      last = candidate.position;
      if (candidate.eligible && (!best || candidate.log_odds > best->log_odds)) best = &candidate;
    }
    end_run();
    return chosen;
  }

  /// `draft`: chosen by its run.
  void promote(const Candidate& candidate, std::vector<Edit>& edits, bool draft) {
    edits.push_back(commit(candidate));
    const bool shown = draft || reaches_visible(candidate);
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
    const double own = probability_of_queried(candidate);
    const bool other = candidate.eligible && candidate.token != context.canvas.token(candidate.position);
    const double enough = config_.revise_threshold.value_or(config_.visible_threshold);
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
      // Counted as a revision when it is unmasked again; otherwise the position could alternate forever.
      remasked_[candidate.position] = state.revisions + 1;
      edits.push_back({candidate.position, mask_, EditKind::kRemask, own});
      visible_.erase(found);
    }
  }

  /// Tokens committed after one that has now changed may have depended on it: they become visible again. This ends,
  /// because each change counts as a revision of its position.
  void reopen(std::int64_t since) {
    for (auto it = final_.begin(); it != final_.end();) {
      const bool later = it->second.since > since;
      if (later) visible_.insert(*it);
      it = later ? final_.erase(it) : std::next(it);
    }
  }

  RevisionOptions config_;
  std::map<Position, State> visible_;
  std::map<Position, State> final_;  ///< stable tokens
  std::map<Position, std::int32_t> remasked_;
  std::vector<Position> refreshed_;  ///< reviewed before the window in this pass
  TokenId mask_ = -1;
  std::int64_t pass_ = 0;
  std::int32_t drained_ = 0;
  bool draining_ = false, last_pass_changed_ = false;
};

}  // namespace

DecoderEntry revision_decoder() {
  return declare_method<Decoder>(
             "revision", "committed tokens are scored again until they are final (llada.cpp)", revision_rows(),
             [](const RevisionOptions& options, const MethodContext&) { return std::make_unique<Revision>(options); })
      .not_read({"smoothing"})
      .depending_on(revision_rows(), [](const RevisionOptions& options) {
        MethodTraits traits{.greedy = true, .revises = true, .drains_fully = options.drain_full};
        if (options.second()) traits.second_path = options;
        return traits;
      });
}

}  // namespace dllm
