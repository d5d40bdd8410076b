#include "decode/loop/soft_masks.h"

#include <algorithm>
#include <cmath>

#include "base/to_size.h"
#include "decode/loop/denoise_pass.h"
#include "decode/registry.h"

namespace dllm {
namespace {

OptionRows<SmoothConfig> smooth_rows() {
  using O = SmoothConfig;
  const auto on = [](const O& o) { return o.gain > 0; };
  const std::string when = "with --smooth above 0";
  return {
      option("smooth", &O::gain, 0, 10, "",
             "largest weight of the expected embedding that is added to a mask (dInfer: 0.3); 0: off"),
      option("smooth_first", &O::first, 0, 10, "", "weight after the first pass").only(when, on),
      option("smooth_step", &O::per_pass, 0, 10, "",
             "per pass, the weight grows and the threshold falls by this, from 1 down to --threshold")
          .only(when, on),
      option("smooth_top", &O::top, 0, kMostPositions, "tokens",
             "likeliest tokens that the expectation sums over; 0: the whole vocabulary")
          .only(when, on),
  };
}

}  // namespace

SmoothingEntry iter_smooth() {
  return declare_method<SmoothConfig>(
             "iter-smooth", "masks carry the expected embedding of their last prediction (dInfer's IterSmooth)",
             smooth_rows(),
             [](const SmoothConfig& options, const MethodContext&) { return std::make_unique<SmoothConfig>(options); })
      .depending_on(smooth_rows(),
                    [](const SmoothConfig& options) { return MethodTraits{.smooths = options.gain != 0}; })
      .standard_for("", [](const ModelDesc&) { return true; });
}

void SoftMasks::configure(ScoreRequest& request) const {
  if (!on()) return;
  request.top_tokens = std::max(request.top_tokens, config_.top);
  request.logits = request.logits || config_.top == 0;
}

double SoftMasks::least_threshold() const { return on() ? std::max(0.0, 1 - config_.per_pass * passes_) : 0; }

double SoftMasks::weight() const { return std::min(config_.first + config_.per_pass * passes_, config_.gain); }

void SoftMasks::record(Position position, const RowScore& row, std::span<const TopToken> top,
                       std::span<const float> logits) {
  std::vector<MixedToken>& mixture = mixtures_[position];
  mixture.clear();
  if (!logits.empty()) {
    const double largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double sum = 0;
    for (float z : logits) sum += std::exp(static_cast<double>(z) - largest);
    for (std::size_t v = 0; v < logits.size(); ++v)
      mixture.push_back({static_cast<TokenId>(v),
                         static_cast<float>(weight() * std::exp(static_cast<double>(logits[v]) - largest) / sum)});
    return;
  }
  // Logits become probabilities through the row's own token; a token excluded from the softmax cannot do that.
  if (row.token < 0 || !(row.confidence > 0)) return;
  for (const TopToken& candidate : top) {
    const double p = row.confidence * std::exp(static_cast<double>(candidate.logit) - static_cast<double>(row.logit));
    mixture.push_back({candidate.token, static_cast<float>(weight() * std::min(p, 1.0))});
  }
}

void SoftMasks::learn(const DenoisePass& pass, const Canvas& canvas, const Scores& scores) {
  if (!on() || scores.rows.empty()) return;
  const std::size_t logits = scores.logits.size() / scores.rows.size();
  const auto keep = [&](Position position, std::int32_t score) {
    if (score == DenoisePass::kKept) return;  // no new prediction there
    const auto row = to_size(score);
    if (canvas.masked(position)) {
      record(position, scores.rows[row], top_of(scores, row), std::span(scores.logits).subspan(row * logits, logits));
    } else {
      forget(position);
    }
  };
  for (std::size_t i = 0; i < pass.wanted.size(); ++i) keep(pass.wanted[i], pass.score_of_wanted[i]);
  for (const auto& [position, score] : pass.also_scored) keep(position, score);
  end_pass();
}

void SoftMasks::mix_into(StepPlan& plan, const Canvas& canvas) const {
  if (!on()) return;
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    const Position p = plan.rows[row].position;
    const auto mixed = mixture(p);
    if (canvas.masked(p) && plan.rows[row].token == canvas.mask() && !mixed.empty())
      plan.mixtures.push_back({static_cast<std::int32_t>(row), {mixed.begin(), mixed.end()}});
  }
}

std::span<const MixedToken> SoftMasks::mixture(Position position) const {
  const auto found = mixtures_.find(position);
  if (found == mixtures_.end()) return {};
  return found->second;
}

}  // namespace dllm
