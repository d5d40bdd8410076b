// LLaDA2.2's edits of length (LLaDA2.2's technical report): besides tokens, the model predicts DELETE (remove this
// position) and INSERT (add a mask before this position). All edits of a pass apply at once to the window's generated
// part:
//   [a, b, c, d], DELETE at 1, INSERT at 3  ->  [a, c, mask, d].
// The part keeps its length: masks fill its end, and what is pushed past its end is lost. Nothing before or after the
// window moves, so positions and K/V elsewhere stay valid; inside, caches find other tokens at the shifted positions
// and recompute those rows, whose rotary positions have changed.
//
// A mask is "original" if the window began with it, "introduced" if an edit made it.
//
// While originals are left (filling): predictions above --threshold fill masks; tokens are replaced by other
// predictions above --edit-threshold; DELETE and INSERT need --edit-threshold at tokens and --threshold at masks. With
// n such edits of length, n + 1 masks are filled, the most certain of the others if necessary; if there are not enough,
// the least certain edits of length are dropped. An edit of length makes at most one mask, so every pass reduces the
// masks.
//
// Once they are gone (editing), the same applies without the n + 1 fills, for at most --max-post-steps passes per
// window in total; the window is finished when a pass changes nothing. If a pass would repeat an earlier state of the
// window, its least certain change takes the best token not tried there before, or is dropped; if that also repeats a
// state, editing ends. Masks left at the end are filled by one pass in which neither the mask nor an edit of length can
// be predicted.
//
// So a window of m masks takes at most m + max_post_steps + 1 passes. A sliding window shares the budget of the first
// one until it has left it.
//
// The description leaves open, and we decided: a token whose prediction is the mask stays (DELETE and INSERT are the
// edits of length); a mask whose prediction is the mask waits, original or not, unless nothing else is left to fill;
// INSERT at a mask makes two masks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "decode/decoder/edit_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct LevenshteinOptions : EditOptions {
  std::optional<TokenId> delete_token, insert_token;
};

/// The model's own token, where none is given.
auto from_model(std::optional<TokenId> ModelDesc::* token) {
  return [token](const LevenshteinOptions&, const ModelDesc& desc, const MethodContext&) -> std::optional<OptionValue> {
    if (!(desc.*token)) return std::nullopt;
    return OptionValue(std::int64_t{*(desc.*token)});
  };
}

Expected<void> check_token(std::optional<TokenId> token, const ModelDesc& desc) {
  if (!token)
    return Error{ErrorCode::kUsage, "the model names no token for this edit", "",
                 "give its id, or --algorithm draft-edit, which keeps lengths"};
  if (*token < desc.vocab && token != desc.mask) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("token id {} is the mask, or outside the vocabulary of {}", *token, desc.vocab), "", ""};
}

OptionRows<LevenshteinOptions> levenshtein_rows() {
  using O = LevenshteinOptions;
  const std::string model = "as the model's file says";
  return join_rows<O>(
      edit_rows(),
      OptionRows<O>{
          option("delete_token", &O::delete_token, 0, kMostInteger, "",
                 "token id that deletes its position when predicted")
              .otherwise(model, from_model(&ModelDesc::delete_token))
              .checked([](const O& o, const ModelDesc& desc) { return check_token(o.delete_token, desc); }),
          option("insert_token", &O::insert_token, 0, kMostInteger, "",
                 "token id that inserts a mask before its position when predicted")
              .otherwise(model, from_model(&ModelDesc::insert_token))
              .checked([](const O& o, const ModelDesc& desc) -> Expected<void> {
                if (o.insert_token && o.insert_token == o.delete_token)
                  return Error{ErrorCode::kUsage, "deletion and insertion have the same token", "", ""};
                return check_token(o.insert_token, desc);
              }),
      });
}

constexpr std::int32_t kAlternatives = 8;  ///< best tokens tried where the first is not usable

class Levenshtein : public Decoder {
 public:
  explicit Levenshtein(const LevenshteinOptions& config) : config_(config) {}

  bool revises() const override { return true; }
  bool keeps_schedule() const override { return bounded_; }
  bool holds_window(const DecodeContext&) const override { return !settled_ && post_steps_ < config_.max_post_steps; }

  void configure(ScoreRequest& request) const override {
    request.top_tokens = std::max(request.top_tokens, kAlternatives);
    if (!cleaning_) return;
    for (const std::optional<TokenId> token : {config_.delete_token, config_.insert_token})
      if (token) request.rules.push_back({*token, false, true});
  }

  std::vector<Position> wanted(const DecodeContext& context) override {
    enter(context);
    return cleaning_ ? Decoder::wanted(context) : generated_positions(context);
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    bounded_ = true;
    std::vector<Place> places;
    for (const Candidate& candidate : candidates) places.push_back(place(context.canvas, candidate));
    if (cleaning_) return clean(places);
    const bool filling = has_originals(context);
    for (Place& one : places) propose(one);
    fill(places, filling);
    if (!filling) {
      ++post_steps_;
      avoid_cycles(places);
    }
    return edits(context, places);
  }

 private:
  enum class Op { kKeep, kSet, kDelete, kInsert };

  /// A prediction that is a token, not an edit of length.
  struct Choice {
    TokenId token = -1;
    double confidence = -1;
    double log_odds = 0;
  };

  struct Place {
    const Candidate* candidate;
    TokenId token;  ///< the current one; the mask's if masked
    bool masked;
    Choice plain;  ///< the best prediction that is a token
    Op op = Op::kKeep;
    TokenId next = -1;  ///< of kSet
    double confidence = 0;

    bool resizes() const { return op == Op::kDelete || op == Op::kInsert; }
    void set(const Choice& choice) {
      op = Op::kSet;
      next = choice.token;
      confidence = choice.confidence;
    }
  };

  bool edits_length(TokenId token) const {
    return token >= 0 && (token == config_.delete_token || token == config_.insert_token);
  }

  void enter(const DecodeContext& context) {
    if (home_.begin < 0 || context.window.begin >= home_.end) {
      home_ = context.window;
      introduced_.clear();
      seen_.clear();
      tried_.clear();
      post_steps_ = 0;
      settled_ = false;
    }
    mask_ = context.canvas.mask();
    const bool masks = context.canvas.masked_count(context.window) > 0;
    if (masks) settled_ = false;
    cleaning_ = masks && !has_originals(context) && post_steps_ >= config_.max_post_steps;
  }

  bool has_originals(const DecodeContext& context) const {
    for (Position p = context.window.begin; p < context.window.end; ++p)
      if (context.canvas.masked(p) && !introduced_.contains(p)) return true;
    return false;
  }

  Place place(const Canvas& canvas, const Candidate& candidate) const {
    Place result{&candidate, canvas.token(candidate.position), canvas.masked(candidate.position), {}};
    if (candidate.token >= 0 && !edits_length(candidate.token)) {
      result.plain = {candidate.token, candidate.confidence, candidate.log_odds};
    } else if (const auto token = alternative(candidate, {})) {
      result.plain = *token;
    }
    return result;
  }

  /// The best token in the list that is neither an edit of length nor in `tried`.
  std::optional<Choice> alternative(const Candidate& candidate, const std::set<TokenId>& tried) const {
    for (const TopToken& top : candidate.top) {
      if (top.token < 0 || top.token == mask_ || edits_length(top.token) || tried.contains(top.token)) continue;
      const double p = probability_of(candidate, top.logit);
      return Choice{top.token, p, std::log(p) - std::log1p(-std::min(p, 1 - 1e-16))};
    }
    return std::nullopt;
  }

  void propose(Place& one) const {
    const Candidate& c = *one.candidate;
    if (c.token < 0 || !c.eligible) return;
    if (!(c.confidence > (one.masked ? config_.threshold : config_.edit_threshold))) return;
    if (edits_length(c.token)) {
      one.op = c.token == config_.delete_token ? Op::kDelete : Op::kInsert;
      one.confidence = c.confidence;
    } else if (one.masked || c.token != one.token) {
      one.set(one.plain);
    }
  }

  /// Makes sure that enough masks are filled: drops edits of length until there are enough masks, then fills the most
  /// certain remaining ones; places whose edit was dropped come last.
  void fill(std::vector<Place>& places, bool filling) {
    std::vector<Place*> open, resizing;
    std::size_t masks = 0, filled = 0;
    for (Place& one : places) {
      masks += one.masked ? 1u : 0u;
      filled += one.masked && one.op == Op::kSet ? 1u : 0u;
      if (one.resizes()) resizing.push_back(&one);
      if (one.masked && one.op == Op::kKeep && one.plain.token >= 0) open.push_back(&one);
    }
    std::stable_sort(resizing.begin(), resizing.end(),
                     [](const Place* a, const Place* b) { return a->confidence > b->confidence; });
    std::vector<Place*> left_out;
    while (filling && !resizing.empty() && filled + open.size() + left_out.size() < resizing.size() + 1) {
      resizing.back()->op = Op::kKeep;
      if (resizing.back()->masked && resizing.back()->plain.token >= 0) left_out.push_back(resizing.back());
      resizing.pop_back();
    }
    for (std::vector<Place*>* group : {&open, &left_out})
      std::stable_sort(group->begin(), group->end(), [](const Place* a, const Place* b) {
        if (a->candidate->eligible != b->candidate->eligible) return a->candidate->eligible;
        return a->plain.log_odds > b->plain.log_odds;
      });
    open.insert(open.end(), left_out.begin(), left_out.end());
    const std::size_t wanted = filling ? resizing.size() + 1 : std::min<std::size_t>(masks, 1);
    for (std::size_t i = 0; i < open.size() && filled < wanted; ++i, ++filled) open[i]->set(open[i]->plain);
    // If nothing can be filled, the predictions are not numbers, which the loop reports.
    bounded_ = filled >= wanted || !resizing.empty();
  }

  /// Avoids states that the window has had before.
  void avoid_cycles(std::vector<Place>& places) {
    std::vector<TokenId> now;
    for (const Place& one : places) now.push_back(one.token);
    seen_.insert(now);
    std::vector<TokenId> next = after(places);
    const bool masks = std::any_of(places.begin(), places.end(), [](const Place& one) { return one.masked; });
    if (next == now && !masks) {
      settled_ = true;
      return;
    }
    if (!seen_.contains(next)) return;
    divert(places);
    next = after(places);
    if (!seen_.contains(next)) return;
    for (Place& one : places) one.op = Op::kKeep;
    settled_ = !masks;
    if (masks) post_steps_ = std::max(post_steps_, config_.max_post_steps);  // the next pass fills them and is the last
  }

  void divert(std::vector<Place>& places) {
    Place* least = nullptr;
    for (Place& one : places)
      if (one.op != Op::kKeep && (!least || one.confidence < least->confidence)) least = &one;
    if (!least) return;
    std::set<TokenId>& tried = tried_[least->candidate->position];
    if (least->op == Op::kSet) tried.insert(least->next);
    tried.insert(least->token);
    least->op = Op::kKeep;
    if (const auto other = alternative(*least->candidate, tried)) {
      least->set(*other);
      tried.insert(other->token);
    }
  }

  /// The window's generated part after the operations; masks by their token.
  std::vector<TokenId> after(const std::vector<Place>& places) const {
    std::vector<TokenId> result;
    for (const Place& one : places) {
      if (one.op == Op::kDelete) continue;
      if (one.op == Op::kInsert) result.push_back(mask_);
      result.push_back(one.op == Op::kSet ? one.next : one.token);
    }
    result.resize(places.size(), mask_);
    return result;
  }

  std::vector<Edit> clean(std::vector<Place>& places) {
    std::vector<Edit> result;
    for (const Place& one : places)
      if (one.plain.token >= 0)
        result.push_back({one.candidate->position, one.plain.token, EditKind::kCommit, one.plain.confidence});
    bounded_ = !result.empty();
    settled_ = true;
    return result;
  }

  /// The operations in sequence. Deletions first: each makes room before an insertion can push anything out, so the
  /// result equals applying all at once. Both go from right to left, so positions to the left do not shift.
  std::vector<Edit> edits(const DecodeContext& context, const std::vector<Place>& places) {
    std::vector<Edit> result, deletions, insertions;
    const Position end = context.window.end;
    Position removed = 0;
    for (const Place& one : places) {
      const Position p = one.candidate->position;
      if (one.op == Op::kSet)
        result.push_back({p, one.next, one.masked ? EditKind::kCommit : EditKind::kRevise, one.confidence});
      if (one.op == Op::kDelete) {
        deletions.push_back({p, -1, EditKind::kDelete, one.confidence, end});
        ++removed;
      }
      if (one.op == Op::kInsert) insertions.push_back({p - removed, -1, EditKind::kInsert, one.confidence, end});
    }
    result.insert(result.end(), deletions.rbegin(), deletions.rend());
    result.insert(result.end(), insertions.rbegin(), insertions.rend());
    for (const Edit& edit : result)
      if (shifts(edit.kind)) move_introduced(edit);
    return result;
  }

  void move_introduced(const Edit& edit) {
    const Position step = edit.kind == EditKind::kInsert ? 1 : -1;
    std::set<Position> moved;
    for (Position p : introduced_) {
      if (p < edit.position || p >= edit.end) moved.insert(p);
      const bool stays = step > 0 ? p >= edit.position && p + 1 < edit.end : p > edit.position && p < edit.end;
      if (stays) moved.insert(p + step);
    }
    moved.insert(step > 0 ? edit.position : edit.end - 1);
    introduced_ = std::move(moved);
  }

  LevenshteinOptions config_;
  PositionRange home_{-1, -1};     ///< the window that the fields below belong to
  std::set<Position> introduced_;  ///< masks made by edits; positions filled since are harmless
  std::int32_t post_steps_ = 0;    ///< passes without originals
  bool settled_ = false, cleaning_ = false, bounded_ = true;
  std::set<std::vector<TokenId>> seen_;          ///< states without originals
  std::map<Position, std::set<TokenId>> tried_;  ///< by position, tokens tried to leave a cycle
  TokenId mask_ = -1;
};

}  // namespace

DecoderEntry levenshtein_decoder() {
  return declare_method<Decoder>("levenshtein", "draft-edit with tokens that delete and insert (LLaDA2.2)",
                                 levenshtein_rows(),
                                 [](const LevenshteinOptions& options, const MethodContext&) {
                                   return std::make_unique<Levenshtein>(options);
                                 })
      .not_read({"smoothing"})
      .always({.revises = true, .commits_other = true});
}

}  // namespace dllm
