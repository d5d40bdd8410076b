// After Order-Token Search (Shen et al., arXiv 2601.20339): several states of a block are decoded side by side, on
// branches of the cache in one pass. Where a state is unsure, it continues with other tokens and in other orders, and a
// likelihood decides which states are kept. It spends passes' rows on accuracy.
//
// Of the paper, its abstract and introduction were read, not its equations. Here every state follows the threshold
// rule. Where no mask reaches the threshold, the best one is committed, and as alternatives its next likeliest tokens
// (`alternatives`), and the best token of the next best masks instead (as many). The likelihood of a state is that of
// its tokens when they were committed, times that of the likeliest token at each of its masks in its last pass. The
// `beams` likeliest states are kept. A block is done when none of them has a mask.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/to_size.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct OrderTokenOptions : ThresholdOptions {
  std::int32_t beams = 4, alternatives = 1;
};

OptionRows<OrderTokenOptions> order_token_rows() {
  using O = OrderTokenOptions;
  return join_rows<O>(threshold_rows(),
                      OptionRows<O>{option("beams", &O::beams, 2, Backend::kMostBranchDepth, "states",
                                           "of a block that are kept, and forwarded together"),
                                    option("alternatives", &O::alternatives, 1, 16, "",
                                           "other tokens, and other positions, that an unsure state continues with")});
}

class OrderToken : public Decoder {
 public:
  explicit OrderToken(const OrderTokenOptions& config) : config_(config) {}

  void configure(ScoreRequest& request) const override {
    request.top_tokens = std::max(request.top_tokens, config_.alternatives + 2);  // the mask may be among them
  }
  bool revises() const override { return true; }
  bool keeps_schedule() const override { return acted_; }

  std::vector<std::vector<Edit>> variants(const DecodeContext& context) override {
    forwarded_.clear();
    std::vector<std::vector<Edit>> result;
    if (!follows(context)) return result;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (i == shown_ || states_[i].masks() == 0) continue;
      result.push_back(edits_to(states_[i], context.canvas, context.window));
      forwarded_.push_back(i);
    }
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    if (!follows(context)) {
      states_ = {State(context)};
      shown_ = 0;
    }
    const TokenId mask = context.canvas.mask();
    std::vector<State> next;
    for (const State& state : states_)
      if (state.masks() == 0) next.push_back(state);
    continue_with(states_[shown_], candidates, context.window.begin, mask, next);
    for (std::size_t i = 0; i < context.variants.size(); ++i)
      continue_with(states_[forwarded_[i]], context.variants[i], context.window.begin, mask, next);
    keep_best(next);
    states_ = std::move(next);
    acted_ = !states_.empty();
    if (!acted_) return {};
    // The canvas shows the best state that is not done; of several that are, the best.
    const auto open = std::ranges::find_if(states_, [](const State& state) { return state.masks() > 0; });
    shown_ = open == states_.end() ? 0 : to_size(open - states_.begin());
    window_ = context.window;
    return edits_to(states_[shown_], context.canvas, context.window);
  }

 private:
  struct State {
    explicit State(const DecodeContext& context) {
      for (Position p = context.window.begin; p < context.window.end; ++p) {
        tokens.push_back(context.canvas.masked(p) ? -1 : context.canvas.token(p));
        log_probability.push_back(0);
      }
    }
    std::ptrdiff_t masks() const { return std::ranges::count(tokens, -1); }
    double likelihood() const { return std::accumulate(log_probability.begin(), log_probability.end(), 0.0); }
    void put(std::size_t at, TokenId token, double probability) {
      tokens[at] = token;
      log_probability[at] = std::log(std::max(probability, 1e-30));
    }
    std::vector<TokenId> tokens;          ///< by position of the window; -1: a mask
    std::vector<double> log_probability;  ///< of the token when it was committed; of a mask's likeliest token
  };

  /// Whether the canvas shows the state that was left there.
  bool follows(const DecodeContext& context) const {
    if (states_.empty() || context.window != window_) return false;
    return edits_to(states_[shown_], context.canvas, context.window).empty();
  }

  static std::vector<Edit> edits_to(const State& state, const Canvas& canvas, PositionRange window) {
    std::vector<Edit> edits;
    for (Position p = window.begin; p < window.end; ++p) {
      const auto at = to_size(p - window.begin);
      const TokenId token = state.tokens[at];
      const double confidence = std::exp(state.log_probability[at]);
      if (token == -1 && !canvas.masked(p)) edits.push_back({p, canvas.mask(), EditKind::kRemask, confidence});
      if (token != -1 && canvas.masked(p)) edits.push_back({p, token, EditKind::kCommit, confidence});
      if (token != -1 && !canvas.masked(p) && canvas.token(p) != token)
        edits.push_back({p, token, EditKind::kRevise, confidence});
    }
    return edits;
  }

  /// The states after a pass of this one.
  void continue_with(State state, std::span<const Candidate> candidates, Position begin, TokenId mask,
                     std::vector<State>& next) const {
    const auto at = [&](const Candidate& candidate) { return to_size(candidate.position - begin); };
    std::vector<const Candidate*> ranked;
    for (const Candidate& candidate : candidates) {
      state.log_probability[at(candidate)] = std::log(std::max(candidate.confidence, 1e-30));
      if (candidate.eligible) ranked.push_back(&candidate);
    }
    if (ranked.empty()) return;
    std::ranges::stable_sort(ranked, std::ranges::greater{}, &Candidate::log_odds);
    State follows = state;
    std::size_t sure = 0;
    for (; sure < ranked.size() && ranked[sure]->confidence >= config_.threshold; ++sure) {
    }
    for (std::size_t i = 0; i < std::max<std::size_t>(sure, 1); ++i)
      follows.put(at(*ranked[i]), ranked[i]->token, ranked[i]->confidence);
    next.push_back(std::move(follows));
    if (sure > 0) return;
    const auto most = to_size(config_.alternatives);
    for (std::size_t i = 1; i <= most && i < ranked.size(); ++i) {
      next.push_back(state);
      next.back().put(at(*ranked[i]), ranked[i]->token, ranked[i]->confidence);
    }
    std::size_t others = 0;
    for (const TopToken& other : ranked[0]->top) {
      if (other.token == ranked[0]->token || other.token == mask) continue;
      if (others++ == most) break;
      next.push_back(state);
      next.back().put(at(*ranked[0]), other.token, probability_of(*ranked[0], other.logit));
    }
  }

  void keep_best(std::vector<State>& states) const {
    std::ranges::stable_sort(states, std::ranges::greater{}, &State::likelihood);
    std::vector<State> kept;
    for (State& state : states) {
      if (kept.size() == to_size(config_.beams)) break;
      if (std::ranges::none_of(kept, [&](const State& other) { return other.tokens == state.tokens; }))
        kept.push_back(std::move(state));
    }
    states = std::move(kept);
  }

  OrderTokenOptions config_;
  std::vector<State> states_;  ///< likeliest first
  std::size_t shown_ = 0;      ///< the one that is in the canvas
  PositionRange window_{-1, -1};
  std::vector<std::size_t> forwarded_;  ///< those of variants()
  bool acted_ = false;
};

}  // namespace

DecoderEntry order_token_decoder() {
  return declare_method<Decoder>(
             "order-token",
             "several states of a block side by side, of which the likeliest is kept (Order-Token Search)",
             order_token_rows(),
             [](const OrderTokenOptions& options, const MethodContext&) {
               return std::make_unique<OrderToken>(options);
             })
      .only_for(has_mask)
      .not_read({"cfg_scale", "smoothing"})  // no branch runs beside a second sequence, or with soft masks
      .depending_on(order_token_rows(), [](const OrderTokenOptions& o) {
        return MethodTraits{.greedy = true, .revises = true, .branches = o.beams - 1, .commits_other = true};
      });
}

}  // namespace dllm
