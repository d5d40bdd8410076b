// After S2D2 (arXiv 2603.25702): a model whose blocks are decoded in order is also an autoregressive one, with blocks
// of one position. So it can check its own drafts: a pass predicts the masks of a block, and where that promises to
// pay, a second one reads the leftmost predictions one after the other and accepts each with probability min(1, q / p).
// p is the draft's probability where it was drafted, q its probability after the drafts before it. The first one that
// is refused is replaced by a draw from max(0, q - p), normalized, so that what is checked has the distribution of q
// (Leviathan et al., arXiv 2211.17192). At temperature 0 both are one-hot: drafts hold as far as q has the same
// arg-max. `soft_acceptance` takes the probabilities of temperature 1 there instead, and is no longer exact.
//
// Of the paper, its abstract was read, not its equations. Which tokens are drafted, and when a check pays, is ours: the
// drafts are the neighbouring masks from the first one on. If they are right with the probabilities c1, c2, ... that
// they were drafted with, a check brings 1 + c1 + c1 c2 + ... tokens, for the pass that drafted and `check_cost` more.
// It is made if that is more per pass than the threshold rule would commit now; else the threshold rule decides. With
// the default threshold, which no confidence reaches, that is one token: nearly all tokens are then checked.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/kept_tokens.h"
#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

struct S2d2Options : ThresholdOptions {
  S2d2Options() { threshold = 2; }
  std::int32_t checked_tokens = 32;
  double check_cost = 0;
  bool soft_acceptance = false;
};

constexpr double kMostChecked = 512;

OptionRows<S2d2Options> s2d2_rows() {
  using O = S2d2Options;
  return join_rows<O>(
      threshold_rows(),
      OptionRows<O>{
          option("checked_tokens", &O::checked_tokens, 1, kMostChecked, "tokens", "most that a check reads"),
          option("check_cost", &O::check_cost, 0, 100, "passes",
                 "a check is made if it promises more tokens per pass than the threshold rule, at this cost"),
          option("soft_acceptance", &O::soft_acceptance,
                 "at temperature 0, accept by min(1, q / p) of the probabilities instead of the same arg-max")});
}

/// The distribution that a draw with this request has, by token; sums to 1.
std::vector<double> drawn_from(std::span<const float> logits, const ScoreRequest& request) {
  std::vector<TopToken> counted;
  std::vector<bool> chosen(logits.size(), true);
  std::vector<bool> counts(logits.size(), true);
  for (const TokenRule& rule : request.rules) {
    if (!rule.choose) chosen[static_cast<std::size_t>(rule.token)] = false;
    if (!rule.count) counts[static_cast<std::size_t>(rule.token)] = false;
  }
  for (std::size_t t = 0; t < logits.size(); ++t)
    if (counts[t]) counted.push_back({static_cast<TokenId>(t), logits[t]});
  const KeptTokens kept(request, static_cast<std::int64_t>(logits.size()));
  if (!kept.all())
    std::ranges::sort(counted, better);
  else if (!counted.empty())  // only the best one's place matters
    std::iter_swap(counted.begin(), std::ranges::min_element(counted, better));
  std::vector<double> p(logits.size());
  double mass = 0;
  const auto weight = [&](const TopToken& one) {
    return std::exp(logit_distance(one.logit, counted[0].logit, kept.inverse_temperature()));
  };
  for (const TopToken& one : counted) mass += weight(one);
  counted.resize(static_cast<std::size_t>(kept.count(counted, mass, true)));
  for (const TopToken& one : counted)
    if (chosen[static_cast<std::size_t>(one.token)]) p[static_cast<std::size_t>(one.token)] = weight(one);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& one : p) one /= sum > 0 ? sum : 1;
  return p;
}

/// The token at `u` of a distribution that sums to `mass`, u in (0, 1); -1: there is none.
TokenId token_at(std::span<const double> weights, double mass, double u) {
  TokenId last = -1;
  double sum = 0;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    if (!(weights[t] > 0)) continue;
    last = static_cast<TokenId>(t);
    sum += weights[t];
    if (u * mass < sum) break;
  }
  return last;
}

class S2d2 : public Decoder {
 public:
  explicit S2d2(const S2d2Options& config) : config_(config) {}

  void configure(ScoreRequest& request) const override { request.logits = request.logits || request.temperature > 0; }
  /// A pass that drafts commits nothing.
  bool keeps_schedule() const override { return !drafts_.empty(); }

  std::vector<Edit> drafts(const DecodeContext& context) override {
    std::vector<Edit> result;
    if (drafts_.empty() || context.canvas.first_masked(context.window.begin) != drafts_.front().position) return {};
    for (const Edit& draft : drafts_)
      if (context.window.contains(draft.position)) result.push_back(draft);
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    drafts_.clear();
    logits_.clear();
    std::vector<Edit> sure;
    for (const Candidate& candidate : candidates)
      if (candidate.eligible && candidate.confidence >= config_.threshold) sure.push_back(commit(candidate));
    if (sure.empty()) sure = commit_best(candidates, 1, [](const Candidate& candidate) { return candidate.log_odds; });
    const std::span<const Candidate> leading = leading_masks(context, candidates);
    if (!(tokens_of_check(leading) > static_cast<double>(sure.size()) * (1 + config_.check_cost))) return sure;
    for (const Candidate& candidate : leading) {
      drafts_.push_back(commit(candidate));
      logits_.emplace_back(candidate.logits.begin(), candidate.logits.end());
    }
    return {};
  }

  std::vector<Edit> checked(const DecodeContext& context, std::span<const Candidate> candidates) override {
    const std::vector<Edit> drafts = std::exchange(drafts_, {});
    std::vector<Edit> edits;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[i];
      if (candidate.token < 0) break;
      if (i >= drafts.size()) {
        if (candidate.eligible) edits.push_back(commit(candidate));
        break;
      }
      const TokenId token = judged(context, candidate, drafts[i], i);
      if (token < 0) break;
      edits.push_back(commit(candidate));
      edits.back().token = token;
      if (token != drafts[i].token) break;
    }
    return edits;
  }

 private:
  /// The masks from the window's first one on, without a gap, as far as a check reads.
  std::span<const Candidate> leading_masks(const DecodeContext& context, std::span<const Candidate> candidates) const {
    std::size_t count = 0;
    const Position first = context.canvas.first_masked(context.window.begin);
    while (count < candidates.size() && count < static_cast<std::size_t>(config_.checked_tokens) &&
           candidates[count].position == first + static_cast<Position>(count) && candidates[count].eligible)
      ++count;
    return candidates.first(first > 0 ? count : 0);  // nothing is before position 0
  }

  static double tokens_of_check(std::span<const Candidate> drafts) {
    double expected = 0, right = 1;
    for (const Candidate& draft : drafts) {
      expected += right;
      right *= draft.confidence;
    }
    return expected;
  }

  /// The token at a draft's place: the draft if it is accepted.
  TokenId judged(const DecodeContext& context, const Candidate& candidate, const Edit& draft, std::size_t index) const {
    const auto uniform = [&](RngPurpose purpose) {
      return uniform01(context.rng, purpose, context.step, static_cast<std::uint32_t>(candidate.position));
    };
    const double u = uniform(RngPurpose::kConfidence);
    const bool draws = context.request != nullptr && context.request->temperature > 0;
    if (!draws) {
      if (!config_.soft_acceptance) return candidate.token;
      return u * draft.confidence < probability_of_queried(candidate) ? draft.token : candidate.token;
    }
    const std::vector<double> p = drawn_from(logits_[index], *context.request);
    std::vector<double> q = drawn_from(candidate.logits, *context.request);
    const auto drafted = static_cast<std::size_t>(draft.token);
    if (u * p[drafted] < q[drafted]) return draft.token;
    for (std::size_t t = 0; t < q.size(); ++t) q[t] = std::max(0.0, q[t] - p[t]);
    return token_at(q, std::accumulate(q.begin(), q.end(), 0.0), uniform(RngPurpose::kTransfer));
  }

  S2d2Options config_;
  std::vector<Edit> drafts_;                ///< of the last pass, which the next one checks
  std::vector<std::vector<float>> logits_;  ///< that they were drafted from, where they are drawn
};

}  // namespace

DecoderEntry s2d2_decoder() {
  return declare_method<Decoder>(
             "s2d2", "the model checks its drafts token by token where that pays (after S2D2)", s2d2_rows(),
             [](const S2d2Options& options, const MethodContext&) { return std::make_unique<S2d2>(options); })
      .only_for([](const ModelDesc& desc) -> Expected<void> {
        const bool blocks = desc.causal_block > 1 || desc.has_mode(DecodingMode::kDiffusion);
        if (desc.mask && blocks) return {};
        return Error{ErrorCode::kUsage, "the model was not trained to read token by token: it sees in all directions",
                     "", "give a model with blocks that see only what is before them, or another --algorithm"};
      })
      // A stop token that was deferred has no probability in p and q, so none would be accepted.
      .not_read({"cfg_scale", "smoothing", "defer_eos"})
      .depending_on(s2d2_rows(), [](const S2d2Options& options) {
        return MethodTraits{.checks = options.checked_tokens, .commits_other = true};
      });
}

}  // namespace dllm
