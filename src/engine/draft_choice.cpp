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

/// The `most` largest values, of equal ones the first; ascending.
std::vector<std::size_t> largest(std::span<const float> values, std::size_t most) {
  const auto before = [&](std::size_t a, std::size_t b) {
    return values[a] > values[b] || (values[a] == values[b] && a < b);
  };
  std::vector<std::size_t> heap(std::min(values.size(), most));  // its front is the worst
  if (heap.empty()) return heap;
  std::iota(heap.begin(), heap.end(), std::size_t{0});
  std::ranges::make_heap(heap, before);
  for (std::size_t i = heap.size(); i < values.size(); ++i) {
    if (!(values[i] > values[heap.front()])) continue;
    std::ranges::pop_heap(heap, before);
    heap.back() = i;
    std::ranges::push_heap(heap, before);
  }
  std::ranges::sort(heap);
  return heap;
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
      confidence_(drafter_values(drafter, "conf_proj.weight")) {
  for (const float id : drafter_values(drafter, "d2t")) tokens_.push_back(static_cast<TokenId>(std::lround(id)));
  // Side by side, sums of all ranks grow together: the same bits as one after the other, in vectors.
  const std::vector<float> hidden = drafter_values(drafter, "selector_hidden.weight");
  const auto rank = static_cast<std::size_t>(selector_rank_), width = static_cast<std::size_t>(width_);
  hidden_.resize(hidden.size());
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden_[i % width * rank + i / width] = hidden[i];
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
  std::vector<std::size_t> kept;
  if (previous >= 0 && selector_rank_ > 0) kept = candidates(previous, hidden, logits);
  const std::size_t count = kept.empty() ? logits.size() : kept.size();
  const auto at = [&](std::size_t i) { return kept.empty() ? i : kept[i]; };
  double best = -std::numeric_limits<double>::infinity(), sum = 0;
  row.token = -1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t t = at(i);
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
  for (std::size_t i = 0; i < count; ++i)
    if (const float logit = logits[at(i)]; std::isfinite(logit))
      sum += std::exp(static_cast<double>(logit) - static_cast<double>(row.logit));
  row.confidence = sum > 0 ? 1 / sum : 0;
  row.log_odds = sum > 1 ? -std::log(sum - 1) : std::numeric_limits<double>::infinity();
}

/// logits += w2 (w1 of the token in front).
void DraftChoice::add_markov(TokenId previous, std::span<float> logits) const {
  const std::span<const float> from = row_of(first_, markov_rank_, previous);
  for (std::size_t t = 0; t < logits.size(); ++t)
    logits[t] += dot(from, row_of(second_, markov_rank_, static_cast<std::int64_t>(t)));
}

/// Rows of the `selector_top_` largest logits, to each of which is added
/// sum over r of pred[previous][r] (H h)[r] succ[candidate][r].
std::vector<std::size_t> DraftChoice::candidates(TokenId previous, std::span<const float> hidden,
                                                 std::span<float> logits) const {
  std::vector<float> pair(static_cast<std::size_t>(selector_rank_));
  for (std::int64_t i = 0; i < width_; ++i) {
    const float h = hidden[static_cast<std::size_t>(i)];
    const float* const row = row_of(hidden_, selector_rank_, i).data();
    for (std::size_t r = 0; r < pair.size(); ++r) pair[r] += h * row[r];
  }
  const std::span<const float> before = row_of(predecessor_, selector_rank_, previous);
  for (std::size_t r = 0; r < pair.size(); ++r) pair[r] *= before[r];
  std::vector<std::size_t> kept = largest(logits, static_cast<std::size_t>(selector_top_));
  for (const std::size_t row : kept) logits[row] += dot(pair, row_of(successor_, selector_rank_, target_of(row)));
  return kept;
}

}  // namespace dllm
