// CreditDecoding (arXiv 2510.06133): while a token stays the arg-max of a masked position it accumulates credit, C <-
// beta C, then C[arg max z] += p_max^gamma. The threshold rule is applied to the fused logits z' = z + alpha ln(1 + C).
// Credit is computed from the model's own z, so there is no feedback.
//
// Sparse form: after n steps a row has at most n credited tokens, and only their logits are needed. The sum of exp z'
// is the reduced row's sum plus the sum over credited tokens of e^z (e^bonus - 1). As bonuses are >= 0 and the arg-max
// of z has credit, no other token can be the arg-max of z'.
//
// If the model predicts the mask, it earns no credit; the position may be committed once a credited token's fused logit
// exceeds the mask's. Under --compat the mask is a token like any other, as upstream.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "decode/decoder/shared_rows.h"
#include "decode/registry.h"

namespace dllm {
namespace {

constexpr double kCreditTieWidth = 1e-5;

struct CreditOptions : ThresholdOptions {
  double credit_alpha = 0.7, credit_beta = 0.8, credit_gamma = 0.2;
};

OptionRows<CreditOptions> credit_rows() {
  using O = CreditOptions;
  const auto gathers = [](const O& o) { return o.credit_alpha > 0; };
  const std::string when = "with --credit-alpha above 0";
  return join_rows<O>(
      threshold_rows(),
      OptionRows<O>{
          option("credit_alpha", &O::credit_alpha, 0, 1e3, "",
                 "weight of the accumulated credit; 0: the threshold rule"),
          option("credit_beta", &O::credit_beta, 0, 1, "", "share of the credit that is kept from one step to the next")
              .only(when, gathers),
          option("credit_gamma", &O::credit_gamma, 0, 1e3, "", "exponent of the confidence that is added to the credit")
              .only(when, gathers),
      });
}

class Credit : public Decoder {
 public:
  explicit Credit(const CreditOptions& config) : config_(config) {}

  std::vector<TokenQuery> queries(const DecodeContext& context) override {
    std::vector<TokenQuery> result;
    for (Position p : Decoder::wanted(context)) {
      for (const Entry& entry : credits_[p]) result.push_back({p, entry.token});
      result.push_back({p, std::max<TokenId>(0, context.canvas.mask())});
    }
    return result;
  }

  std::vector<Edit> decode(const DecodeContext& context, std::span<const Candidate> candidates) override {
    std::vector<Candidate> fused;
    for (const Candidate& candidate : candidates) fused.push_back(fuse(candidate, context.canvas.mask()));
    double best = -std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : fused)
      if (candidate.eligible) best = std::max(best, candidate.confidence);
    const double bound = std::min(config_.threshold, best - kCreditTieWidth);
    std::vector<Edit> edits;
    for (const Candidate& candidate : fused)
      if (candidate.eligible && candidate.confidence >= bound) {
        edits.push_back(commit(candidate));
        credits_.erase(candidate.position);
      }
    return edits;
  }

 private:
  struct Entry {
    TokenId token;
    double credit;
    double distance;  ///< its logit minus the prediction's
  };

  /// The candidate under the fused logits. Also updates its credit.
  Candidate fuse(const Candidate& candidate, TokenId mask) {
    std::vector<Entry>& entries = credits_[candidate.position];
    const double logit = candidate.logit;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      entries[i].credit *= config_.credit_beta;
      entries[i].distance = static_cast<double>(candidate.queried[i]) - logit;
    }
    // Confidence 0: the token is excluded from the softmax (deferred end of sequence), so nothing can be computed from
    // it.
    if (candidate.token < 0 || !(candidate.confidence > 0)) return candidate;
    auto own = std::find_if(entries.begin(), entries.end(),
                            [&](const Entry& entry) { return entry.token == candidate.token; });
    if (own == entries.end()) own = entries.insert(entries.end(), {candidate.token, 0, 0});
    if (candidate.eligible) own->credit += std::pow(candidate.confidence, config_.credit_gamma);

    const Entry& best = *std::min_element(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
      const double x = a.distance + bonus(a), y = b.distance + bonus(b);
      return x > y || (x == y && a.token < b.token);
    });
    if (std::all_of(entries.begin(), entries.end(), [&](const Entry& entry) { return bonus(entry) == 0; }))
      return candidate;  // bit-identical to the plain threshold rule

    // Relative to the prediction's e^z: the others sum to e^-log_odds; credited ones among them are replaced.
    double uncredited = std::exp(-candidate.log_odds), others = 0;
    for (const Entry& entry : entries) {
      if (entry.token != candidate.token) uncredited -= std::exp(entry.distance);
      if (entry.token != best.token) others += std::exp(entry.distance + bonus(entry));
    }
    others += std::max(0.0, uncredited);
    Candidate fused = candidate;
    const double lead = best.distance + bonus(best);
    fused.token = best.token;
    fused.confidence = 1 / (1 + others * std::exp(-lead));
    fused.log_odds = lead - std::log(others);
    const double mask_lead = static_cast<double>(candidate.queried.back()) - logit;
    if (!candidate.eligible) fused.eligible = lead > mask_lead || (lead == mask_lead && best.token < mask);
    return fused;
  }

  double bonus(const Entry& entry) const { return config_.credit_alpha * std::log1p(entry.credit); }

  CreditOptions config_;
  std::map<Position, std::vector<Entry>> credits_;
};

}  // namespace

DecoderEntry credit_decoder() {
  return declare_method<Decoder>(
             "credit", "the threshold rule, with credit for tokens that stay the likeliest", credit_rows(),
             [](const CreditOptions& options, const MethodContext&) { return std::make_unique<Credit>(options); })
      .always({.greedy = true, .commits_other = true});  // an earlier prediction, if it has more credit
}

}  // namespace dllm
