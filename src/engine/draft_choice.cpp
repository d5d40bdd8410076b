#include "engine/draft_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rng.h"
#include "model/drafter_source.h"

namespace dllm {
namespace {

std::span<const float> row_of(const std::vector<float>& table, std::int64_t width, std::int64_t row) {
  return std::span(table).subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
}

float dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.f);
}

bool never(const ScoreRequest& request, TokenId token) {
  return std::ranges::any_of(request.rules, [&](const TokenRule& rule) { return rule.token == token && !rule.choose; });
}

}  // namespace

DraftChoice::DraftChoice(const Model& drafter)
    : width_(drafter.desc().width),
      markov_rank_(drafter.desc().drafter.markov_rank),
      selector_rank_(drafter.desc().drafter.selector_rank),
      selector_top_(drafter.desc().drafter.selector_top),
      first_(drafter_values(drafter, "markov_w1.weight")),
      second_(drafter_values(drafter, "markov_w2.weight")),
      predecessor_(drafter_values(drafter, "selector_predecessor.weight")),
      successor_(drafter_values(drafter, "selector_successor.weight")),
      hidden_(drafter_values(drafter, "selector_hidden.weight")),
      confidence_(drafter_values(drafter, "conf_proj.weight")) {
  for (const float id : drafter_values(drafter, "d2t")) tokens_.push_back(static_cast<TokenId>(std::lround(id)));
  if (confidence_.empty()) return;
  const std::vector<float> bias = drafter_values(drafter, "conf_proj.bias");
  confidence_.push_back(bias.empty() ? 0.f : bias.front());
}

void DraftChoice::prepare(ScoreRequest& request) const {
  request.hidden = selector_rank_ > 0 || !confidence_.empty();
  if (plain()) return;
  request.logits = true;
  if (tokens_.empty()) return;
  // They name the target's tokens; choose() reads them.
  request.rules.clear();
  request.adjustments = {};
}

void DraftChoice::choose(const SequenceStep& draft, Scores& scores) const {
  if (plain() && confidence_.empty()) return;
  const std::size_t vocab = scores.rows.empty() ? 0 : scores.logits.size() / scores.rows.size();
  const auto width = static_cast<std::size_t>(width_);
  for (std::size_t i = 0; i < scores.rows.size(); ++i) {
    RowScore& row = scores.rows[i];
    // The known token, one that an earlier pass kept, or the choice for the row in front.
    const Position begin = draft.plan.rows.front().position;
    TokenId previous = draft.plan.rows[static_cast<std::size_t>(row.position - begin) - 1].token;
    if (i > 0 && scores.rows[i - 1].position + 1 == row.position) previous = scores.rows[i - 1].token;
    const auto hidden =
        scores.hidden.empty() ? std::span<const float>() : std::span(scores.hidden).subspan(i * width, width);
    if (!plain()) choose_row(draft.request, row, previous, hidden, std::span(scores.logits).subspan(i * vocab, vocab));
    if (confidence_.empty()) continue;
    float sum = confidence_.back() + dot(hidden, std::span(confidence_).first(width));
    if (markov_rank_ > 0 && previous >= 0)
      sum += dot(row_of(first_, markov_rank_, previous),
                 std::span(confidence_).subspan(width, static_cast<std::size_t>(markov_rank_)));
    row.log_odds = static_cast<double>(sum);
    row.confidence = 1 / (1 + std::exp(-row.log_odds));
  }
  scores.logits.clear();
  scores.hidden.clear();
}

/// The largest logit, or the draw, with the noise of the target's token.
void DraftChoice::choose_row(const ScoreRequest& request, RowScore& row, TokenId previous,
                             std::span<const float> hidden, std::span<float> logits) const {
  if (previous >= 0 && markov_rank_ > 0) add_markov(previous, logits);
  if (previous >= 0 && selector_rank_ > 0) keep_candidates(previous, hidden, logits);
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  row.token = -1;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    if (!std::isfinite(logits[t])) continue;
    const TokenId token = target_of(t);
    if (never(request, token)) continue;  // a mask would be drafted again and again
    double key = static_cast<double>(logits[t]);
    if (request.temperature > 0)
      key = key / request.temperature + gumbel(request.rng, RngPurpose::kToken, request.step_at(row.position),
                                               static_cast<std::uint32_t>(row.position + request.draw_ahead),
                                               static_cast<std::uint32_t>(token));
    if (key > best) best = key, row.token = token, row.logit = logits[t];
  }
  if (!confidence_.empty()) return;  // choose() takes the confidence head's
  for (const float logit : logits)
    if (std::isfinite(logit)) sum += std::exp(static_cast<double>(logit) - static_cast<double>(row.logit));
  row.confidence = sum > 0 ? 1 / sum : 0;
  row.log_odds = sum > 1 ? -std::log(sum - 1) : std::numeric_limits<double>::infinity();
}

/// logits += w2 (w1 of the token in front).
void DraftChoice::add_markov(TokenId previous, std::span<float> logits) const {
  const std::span<const float> from = row_of(first_, markov_rank_, previous);
  for (std::size_t t = 0; t < logits.size(); ++t)
    logits[t] += dot(from, row_of(second_, markov_rank_, static_cast<std::int64_t>(t)));
}

/// The `selector_top_` largest logits, each plus sum over r of pred[previous][r] (H h)[r] succ[candidate][r]; the
/// others are out.
void DraftChoice::keep_candidates(TokenId previous, std::span<const float> hidden, std::span<float> logits) const {
  std::vector<float> pair(static_cast<std::size_t>(selector_rank_));
  const std::span<const float> before = row_of(predecessor_, selector_rank_, previous);
  for (std::size_t r = 0; r < pair.size(); ++r)
    pair[r] = before[r] * dot(hidden, row_of(hidden_, width_, static_cast<std::int64_t>(r)));
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t kept = std::min(order.size(), static_cast<std::size_t>(selector_top_));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](std::size_t a, std::size_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
  for (std::size_t i = kept; i < order.size(); ++i) logits[order[i]] = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < kept; ++i)
    logits[order[i]] += dot(pair, row_of(successor_, selector_rank_, target_of(order[i])));
}

}  // namespace dllm
