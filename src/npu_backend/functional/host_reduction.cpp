#include "npu_backend/functional/host_reduction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/kept_tokens.h"
#include "base/to_size.h"

namespace dllm::npu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Candidate {
  TokenId token = -1;
  float logit = -std::numeric_limits<float>::infinity();
  double key = -kInfinity;
};

class Reduction {
 public:
  Reduction(std::span<const float> logits, const ScoreRequest& request, Position position)
      : z_(logits),
        r_(request),
        kept_(request, static_cast<std::int64_t>(logits.size())),
        position_(position),
        choose_(logits.size(), true),
        count_(logits.size(), true) {
    for (const TokenRule& rule : request.rules) {
      if (rule.token < 0 || to_size(rule.token) >= logits.size()) continue;
      const auto i = to_size(rule.token);
      choose_[i] = choose_[i] && rule.choose;
      count_[i] = count_[i] && rule.count;
    }
    for (std::size_t i = 0; i < z_.size(); ++i)
      if (!std::isnan(z_[i])) sorted_.push_back({static_cast<TokenId>(i), z_[i]});
    std::sort(sorted_.begin(), sorted_.end(), better);
    for (const TopToken& t : sorted_)
      if (count_[to_size(t.token)]) counted_.push_back(t);
  }

  HostScores run() {
    HostScores result;
    for (std::int32_t i = 0; i < r_.top_tokens; ++i)
      result.top.push_back(to_size(i) < sorted_.size() ? sorted_[to_size(i)]
                                                       : TopToken{-1, -std::numeric_limits<float>::infinity()});
    const bool draws = r_.temperature > 0;
    const bool filters = !kept_.all();
    const std::size_t kept = kept_count();
    // A scan over all tokens; its keys include the noise only if nothing is filtered.
    Candidate chosen, winner;
    for (const TopToken& t : sorted_) scan(t, draws && !filters, chosen, winner);
    bool overruled = winner.token != chosen.token;
    if (filters && draws) {
      Candidate kept_choice, kept_winner;
      for (std::size_t i = 0; i < kept; ++i) scan(counted_[i], true, kept_choice, kept_winner);
      if (kept_choice.token != -1) chosen = kept_choice;
      overruled = kept_winner.token != -1 && kept_winner.token != chosen.token;
    }
    const bool raw = r_.distribution == ScoreDistribution::kRaw;
    const std::size_t described = filters && !raw ? kept : counted_.size();
    describe(chosen, described, raw || !draws ? 1 : 1 / r_.temperature, result.score);
    result.score.overruled = overruled;
    return result;
  }

 private:
  void scan(const TopToken& t, bool noisy, Candidate& chosen, Candidate& winner) const {
    const auto i = to_size(t.token);
    if (!choose_[i] && !count_[i]) return;
    double key = static_cast<double>(t.logit);
    if (noisy)
      key = key / r_.temperature + gumbel(r_.rng, RngPurpose::kToken, r_.step_at(position_),
                                          static_cast<std::uint32_t>(position_ + r_.draw_ahead),
                                          static_cast<std::uint32_t>(t.token));
    const auto offer = [&](Candidate& best) {
      if (best.token == -1 || key > best.key || (key == best.key && t.token < best.token))
        best = {t.token, t.logit, key};
    };
    offer(winner);
    if (choose_[i]) offer(chosen);
  }

  std::size_t kept_count() const {
    if (kept_.all() || counted_.empty()) return counted_.size();
    double mass = 0;
    for (const TopToken& t : counted_)
      mass += std::exp(logit_distance(t.logit, counted_.front().logit, kept_.inverse_temperature()));
    return to_size(kept_.count(counted_, mass, /*complete=*/true));
  }

  /// Over the first `count` counted tokens. Sums exclude the largest, so that log-odds and entropy keep their
  /// precision.
  void describe(const Candidate& chosen, std::size_t count, double beta, RowScore& score) const {
    score.position = position_;
    score.token = chosen.token;
    score.logit = chosen.logit;
    score.log_odds = -kInfinity;
    if (count == 0) return;
    const TopToken& top = counted_.front();
    double rest = 0, weighted = 0;
    bool possible = chosen.token == top.token;
    for (std::size_t i = 1; i < count; ++i) {
      possible = possible || counted_[i].token == chosen.token;
      const double d = logit_distance(counted_[i].logit, top.logit, beta);
      if (!(d > -745)) continue;  // e^d is 0
      rest += std::exp(d);
      weighted += d * std::exp(d);
    }
    const double total = 1 + rest;
    score.entropy = std::log(total) - weighted / total;
    score.margin = 1 / total;
    if (count > 1) score.margin = -std::expm1(logit_distance(counted_[1].logit, top.logit, beta)) / total;
    if (!possible || chosen.token == -1) return;
    if (chosen.token == top.token) {
      score.confidence = 1 / total;
      score.log_odds = -std::log(rest);
      return;
    }
    const double d = logit_distance(chosen.logit, top.logit, beta), e = std::exp(d);
    score.confidence = e / total;
    score.log_odds = d - std::log1p(std::max(0.0, rest - e));
  }

  std::span<const float> z_;
  const ScoreRequest& r_;
  const KeptTokens kept_;
  Position position_;
  std::vector<bool> choose_, count_;
  std::vector<TopToken> sorted_, counted_;
};

}  // namespace

HostScores reduce_on_host(std::span<const float> logits, const ScoreRequest& request, Position position) {
  return Reduction(logits, request, position).run();
}

std::vector<Scores> score_on_host(std::span<const SequenceStep> batch, const std::vector<std::vector<float>>& logits,
                                  std::int64_t vocabulary) {
  const auto vocab = to_size(vocabulary);
  std::vector<Scores> scores(batch.size());
  std::vector<bool> helper(batch.size(), false);
  for (const SequenceStep& step : batch)
    if (step.guidance) helper[to_size(step.guidance->unconditional)] = true;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    if (helper[s]) continue;
    const SequenceStep& step = batch[s];
    const std::vector<LogitQuery>& queries = step.request.queries;
    std::size_t query = 0;
    for (std::size_t i = 0; i < step.plan.scored.size(); ++i) {
      const auto first = logits[s].begin() + static_cast<std::ptrdiff_t>(i * vocab);
      std::vector<float> row(first, first + vocabulary);
      if (step.guidance) {
        const std::vector<float>& other = logits[to_size(step.guidance->unconditional)];
        const float weight = step.guidance->scale + 1.f;
        for (std::size_t t = 0; t < vocab; ++t)
          row[t] = other[i * vocab + t] + weight * (row[t] - other[i * vocab + t]);
      }
      step.request.adjustments.apply(i, 0, row);
      const Position position = step.plan.row(step.plan.scored[i]).position;
      HostScores reduced = reduce_on_host(row, step.request, position);
      scores[s].rows.push_back(reduced.score);
      scores[s].top.insert(scores[s].top.end(), reduced.top.begin(), reduced.top.end());
      for (; query < queries.size() && to_size(queries[query].scored) == i; ++query)
        scores[s].queried.push_back(row[to_size(queries[query].token)]);
      if (step.request.logits) scores[s].logits.insert(scores[s].logits.end(), row.begin(), row.end());
    }
  }
  return scores;
}

void hand_out(std::span<const SequenceStep> batch, std::span<const float> hidden, bool scored,
              std::vector<Scores>& scores) {
  const auto count = [scored](const SequenceStep& step) {
    return scored ? step.plan.scored.size() : to_size(step.plan.row_count());
  };
  std::size_t rows = 0, first = 0;
  for (const SequenceStep& step : batch) rows += count(step);
  const std::size_t columns = rows == 0 ? 0 : hidden.size() / rows;
  for (std::size_t s = 0; s < batch.size(); first += count(batch[s]) * columns, ++s) {
    const auto of_sequence = hidden.subspan(first, count(batch[s]) * columns);
    if (batch[s].request.hidden) scores[s].hidden.assign(of_sequence.begin(), of_sequence.end());
  }
}

}  // namespace dllm::npu
