#include "decode/loop/refiner.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/to_size.h"
#include "base/try.h"
#include "decode/loop/denoise_pass.h"

namespace dllm {

Position Refiner::capacity(Position prompt, Position length, const CanvasDesc& canvas) {
  if (canvas.first > 0) return prompt + length;
  return prompt + (length + canvas.length - 1) / canvas.length * canvas.length;
}

/// Of the canvas behind `before` positions of the answer.
static Position length_behind(Position before, const CanvasDesc& canvas) {
  return canvas.first > 0 ? std::clamp(before, Position{canvas.first}, Position{canvas.length}) : canvas.length;
}

Position Refiner::whole(Position before, Position most, const CanvasDesc& canvas) {
  Position sum = length_behind(before, canvas);
  for (Position next = 0; sum + next <= most; next = length_behind(before + sum, canvas)) sum += next;
  return sum;
}

Refiner::Refiner(const ModelDesc& desc, Canvas canvas, RefineOptions options, KvCache& cache)
    : desc_(desc),
      canvas_(std::move(canvas)),
      options_(std::move(options)),
      cache_(cache),
      sampler_(options_.canvas),
      best_(options_.constraint),
      draws_(options_.constraint),
      finished_(canvas_),
      begin_(canvas_.prompt_end()) {
  assert(cache_.capacity() >= capacity(canvas_.prompt_end(), canvas_.size() - canvas_.prompt_end(), options_.canvas));
  begin_canvas();
}

void Refiner::begin_canvas() {
  sampler_.begin();
  fed_back_.clear();
  shown_.clear();
  Position length = length_behind(begin_ - canvas_.answer_begin(), options_.canvas);
  if (options_.canvas.first > 0) length = std::min(length, canvas_.size() - begin_);
  for (Position p = begin_; p < begin_ + length; ++p)
    shown_.push_back(canvas_noise(options_.rng, pass_, p, desc_.vocab));
}

std::span<const SequenceStep> Refiner::prepare() {
  prepared_.clear();
  if (begin_ >= canvas_.size() || (stop_ && !options_.exact_length)) return {};
  if (read_ < begin_)
    prepared_.push_back({&cache_, read_context(), {}, std::nullopt});
  else
    prepared_.push_back({&cache_, refine(), request(), std::nullopt});
  return prepared_;
}

StepPlan Refiner::read_context() const {
  StepPlan plan;
  plan.region = Region::kContext;
  plan.causal_block = 1;
  plan.visible = {{0, begin_}};
  // Rows that an earlier request has left are not computed again, but a pass has at least one.
  const Position first = read_ > 0 ? read_ : std::min(cache_.matching(canvas_.prompt()), begin_ - 1);
  for (Position p = first; p < begin_; ++p) plan.rows.push_back({p, canvas_.token(p)});
  if (options_.images == nullptr) return plan;
  for (const PromptImages::Image& image : options_.images->images()) {
    const auto [begin, end] = image.positions();
    if (end > first) plan.groups.push_back({begin, end});
    for (Position p = std::max(first, begin); p < end; ++p)
      plan.given.push_back({p - first, image.embedding->rows.data() + (p - begin) * image.embedding->width});
  }
  return plan;
}

StepPlan Refiner::refine() const {
  StepPlan plan;
  plan.region = Region::kCanvas;
  plan.visible = {{0, canvas_end()}};
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    plan.rows.push_back({begin_ + static_cast<Position>(i), shown_[i]});
    plan.scored.push_back(static_cast<std::int32_t>(i));
  }
  plan.mixtures = fed_back_;
  return plan;
}

ScoreRequest Refiner::request() {
  ScoreRequest request;
  request.temperature = sampler_.temperature();
  request.distribution = ScoreDistribution::kSampled;
  request.rng = options_.rng;
  request.step = pass_;
  request.top_tokens = 1;
  request.logits = true;
  ScoreRequest likeliest = request;
  likeliest.temperature = 0;
  best_.configure(likeliest);
  draws_.configure(request);
  return request;
}

Expected<DenoiseStep> Refiner::absorb(std::span<const Scores> scores) {
  const StepPlan& plan = prepared_.front().plan;
  counters_.nfe += 1;
  counters_.steps += 1;
  counters_.rows_forwarded += static_cast<std::int64_t>(plan.rows.size());
  counters_.rows_scored += static_cast<std::int64_t>(plan.scored.size());
  DenoiseStep step;
  step.window = {begin_, std::min(canvas_end(), canvas_.size())};
  if (plan.region == Region::kContext) {
    read_ = begin_;
    return step;
  }

  std::vector<CanvasLook> looks;
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    looks.push_back({scores[0].top[i].token, scores[0].rows[i].token, scores[0].rows[i].entropy, 0});
    if (looks.back().best < 0 || looks.back().drawn < 0 || !std::isfinite(looks.back().entropy))
      return not_a_number(plan.rows[i].position, pass_);
  }
  feed_back(scores[0]);  // at the temperature of this pass
  DLLM_CHECK_OK(hold(scores[0], looks));
  const std::vector<TokenId> kept = sampler_.absorb(looks);
  show(looks, step);
  ++pass_;
  for (std::size_t i = 0; i < shown_.size(); ++i)
    shown_[i] =
        kept[i] >= 0 ? kept[i] : canvas_noise(options_.rng, pass_, begin_ + static_cast<Position>(i), desc_.vocab);
  if (sampler_.finished()) finish_canvas();
  return step;
}

/// Keeps the pass's tokens within the constraint, and computes the probabilities of the best ones.
Expected<void> Refiner::hold(const Scores& scores, std::vector<CanvasLook>& looks) {
  const double temperature = prepared_.front().request.temperature;
  const auto vocab = to_size(desc_.vocab);
  const auto row_of = [&](std::size_t i) { return std::span(scores.logits).subspan(i * vocab, vocab); };
  if (best_.on()) {
    // Nothing is asked of positions behind the answer.
    const auto held = to_size(std::min(canvas_end(), canvas_.size()) - begin_);
    std::vector<std::span<const float>> rows;
    std::vector<Candidate> best, draws;
    for (std::size_t i = 0; i < held; ++i) {
      rows.push_back(row_of(i));
      best.push_back(candidate_of(begin_ + static_cast<Position>(i), scores, i, {}));
    }
    draws = best;
    DLLM_CHECK_OK(best_.apply(finished_, rows, best));
    DLLM_CHECK_OK(draws_.apply(finished_, rows, draws));
    for (std::size_t i = 0; i < held; ++i) {
      looks[i].best = best[i].token;
      looks[i].drawn = draws[i].token;
      looks[i].entropy = draws[i].entropy;
    }
  }
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const RowScore& row = scores.rows[i];
    const double lead =
        (static_cast<double>(row_of(i)[to_size(looks[i].best)]) - static_cast<double>(row.logit)) / temperature;
    looks[i].confidence = looks[i].best == row.token ? row.confidence : std::min(1.0, row.confidence * std::exp(lead));
  }
  return {};
}

/// The arg-max of the pass, which is the answer if it is the last pass.
void Refiner::show(std::span<const CanvasLook> looks, DenoiseStep& step) {
  for (Position p = step.window.begin; p < step.window.end; ++p) {
    const CanvasLook& look = looks[to_size(p - begin_)];
    const Edit edit{p, look.best, canvas_.masked(p) ? EditKind::kCommit : EditKind::kRevise, look.confidence};
    if (canvas_.apply(edit)) step.edits.push_back(edit);
  }
}

/// softmax(z / temperature) of every position, in float64 from float32 logits.
void Refiner::feed_back(const Scores& scores) {
  const double temperature = prepared_.front().request.temperature;
  const auto vocab = to_size(desc_.vocab);
  const double least = 1e-6 / static_cast<double>(vocab);
  fed_back_.clear();
  std::vector<double> weights(vocab);
  for (std::size_t i = 0; i < shown_.size(); ++i) {
    const std::span<const float> z(scores.logits.data() + i * vocab, vocab);
    const auto top = static_cast<double>(scores.top[i].logit);
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v)
      sum += weights[v] = std::exp((static_cast<double>(z[v]) - top) / temperature);
    RowMixture mixture{static_cast<std::int32_t>(i), {}};
    for (std::size_t v = 0; v < vocab; ++v)
      if (weights[v] >= least * sum)
        mixture.tokens.push_back({static_cast<TokenId>(v), static_cast<float>(weights[v] / sum)});
    fed_back_.push_back(std::move(mixture));
  }
}

void Refiner::finish_canvas() {
  const Position end = std::min(canvas_end(), canvas_.size());
  for (Position p = begin_; p < end && !stop_; ++p)
    if (std::ranges::find(options_.stop_ids, canvas_.token(p)) != options_.stop_ids.end()) stop_ = p;
  for (Position p = begin_; p < end; ++p) finished_.apply({.position = p, .token = canvas_.token(p)});
  begin_ = canvas_end();
  begin_canvas();
}

}  // namespace dllm
