#include "decode/loop/constraint_guide.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "backend/kept_tokens.h"
#include "base/to_size.h"

namespace dllm {
namespace {

/// The candidate with another token. Its probability follows from the prediction's: relative to e^(beta z) of the
/// predicted token, all tokens sum to 1 + e^-log_odds.
Candidate with_token(const Candidate& predicted, TokenId token, float logit, double beta) {
  const double distance = beta * (static_cast<double>(logit) - static_cast<double>(predicted.logit));
  const double own = std::exp(distance), all = 1 + std::exp(-predicted.log_odds);
  const double others = std::max(all - own, std::numeric_limits<double>::min());
  Candidate result = predicted;
  result.token = token;
  result.logit = logit;
  result.confidence = std::min(own / all, 1.0);
  result.log_odds = distance - std::log(others);
  result.margin = result.confidence - predicted.confidence;
  result.entropy = std::max(predicted.entropy, std::log(all) - distance);
  return result;
}

}  // namespace

void ConstraintGuide::configure(ScoreRequest& request) {
  if (!on()) return;
  request.logits = true;
  drawing_.reset();
  beta_ = 1;
  if (request.temperature <= 0) return;
  drawing_ = Drawing{request, request.rng, request.step};
  static_cast<Sampling&>(request) = {.temperature = request.temperature};  // the backend filters nothing
  if (request.distribution == ScoreDistribution::kRaw)
    request.temperature = 0;
  else
    beta_ = 1 / request.temperature;
}

std::optional<std::vector<TokenId>> ConstraintGuide::complete(std::span<const constrain::Slot> slots,
                                                              std::span<const std::span<const float>> rows,
                                                              const constrain::ClassWeights& weights, Position begin,
                                                              std::int32_t after) {
  if (drawing_) {
    const auto uniform = [&](std::size_t slot, std::uint32_t attempt) {
      return uniform01(drawing_->rng, RngPurpose::kToken, drawing_->step,
                       static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(slot), attempt);
    };
    constrain::PathDrawer::Rule rule{.temperature = drawing_->options.temperature};
    if (has_filter(drawing_->options))
      rule.keep = [&](std::span<const double> shares) { return count_kept(drawing_->options, shares); };
    return constrain::PathDrawer(*config_.automaton, *finder_).draw(slots, rows, after, rule, uniform);
  }
  return finder_->best(slots, weights, after);
}

Expected<void> ConstraintGuide::apply(const Canvas& canvas, const DenoisePass& pass, const Scores& scores,
                                      std::vector<Candidate>& candidates) {
  if (!on() || candidates.empty()) return {};
  if (scores.logits.empty())
    return Error{ErrorCode::kUnsupported, "this backend returns no logits", "constrained answer", "give --backend cpu"};
  const std::size_t vocabulary = scores.logits.size() / scores.rows.size();
  std::vector<std::span<const float>> rows;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    rows.push_back(std::span(scores.logits).subspan(to_size(pass.score_of_wanted[i]) * vocabulary, vocabulary));
  return apply(canvas, rows, candidates);
}

Expected<void> ConstraintGuide::apply(const Canvas& canvas, std::span<const std::span<const float>> rows,
                                      std::vector<Candidate>& candidates) {
  if (!on() || candidates.empty()) return {};
  const Position begin = canvas.answer_begin(), end = begin + config_.length;
  // Behind the last position that is given or predicted, all are alike.
  Position last = std::min(end, canvas.size());
  while (last > begin && canvas.masked(last - 1) && last - 1 > candidates.back().position) --last;
  std::vector<constrain::Slot> slots(to_size(last - begin));
  for (Position p = begin; p < last; ++p)
    if (!canvas.masked(p)) slots[to_size(p - begin)].token = canvas.token(p);
  std::vector<std::size_t> masks, reviewed;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    (canvas.masked(candidates[i].position) ? masks : reviewed).push_back(i);
  constrain::ClassWeights weights(*config_.automaton);
  if (!drawing_)
    for (const std::span<const float> logits : rows) weights.add(logits);
  const auto choose = [&](const std::vector<std::size_t>& among) {
    const auto place_of = [&](std::size_t i) { return to_size(candidates[i].position - begin); };
    for (const std::size_t i : among) slots[place_of(i)] = {.row = static_cast<std::int32_t>(i)};
    const auto path = complete(slots, rows, weights, begin, end - last);
    if (!path) return false;
    for (const std::size_t i : among) {
      const TokenId token = (*path)[place_of(i)];
      slots[place_of(i)] = {.token = token};
      if (token != candidates[i].token)
        candidates[i] = with_token(candidates[i], token, rows[i][to_size(token)], beta_);
    }
    return true;
  };
  if (!choose(masks)) {
    for (const Candidate& candidate : candidates)
      if (!std::isfinite(candidate.logit)) return not_a_number(candidate.position, 0);
    return Error{ErrorCode::kMismatch, "no answer that the constraint accepts has the tokens that are decided",
                 "constrained answer", "text within the answer must fit the constraint"};
  }
  completed_ = slots;
  // What is decided is one such answer, so only logits that are no numbers leave none.
  if (!reviewed.empty() && !choose(reviewed)) return not_a_number(candidates[reviewed.front()].position, 0);
  return {};
}

std::vector<Edit> ConstraintGuide::keep(const Canvas& canvas, std::vector<Edit> edits) {
  if (!on()) return edits;
  const Position begin = canvas.answer_begin();
  const auto revises = [](const Edit& edit) { return edit.kind == EditKind::kRevise; };
  const constrain::ClassWeights none(*config_.automaton);
  while (std::ranges::any_of(edits, revises)) {
    std::vector<constrain::Slot> slots = completed_;
    for (const Edit& edit : edits) {
      const auto at = to_size(edit.position - begin);
      if (revises(edit)) slots[at] = {.token = edit.token};
      if (edit.kind == EditKind::kRemask) slots[at] = {};
    }
    if (finder_->best(slots, none, config_.length - static_cast<Position>(slots.size()))) break;
    auto worst = edits.end();
    for (auto edit = edits.begin(); edit != edits.end(); ++edit)
      if (revises(*edit) && (worst == edits.end() || edit->confidence < worst->confidence)) worst = edit;
    edits.erase(worst);
  }
  return edits;
}

}  // namespace dllm
