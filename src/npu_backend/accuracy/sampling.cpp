#include "npu_backend/accuracy/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backend/kept_tokens.h"
#include "base/rng.h"

namespace dllm::npu::accuracy {
namespace {

/// The probability of `chosen` at 1 / `beta`.
float confidence_f32(std::span<const float> logits, float top, float chosen, float beta) {
  float sum = 0;
  for (const float z : logits) sum += std::exp((z - top) * beta);
  return std::exp((chosen - top) * beta) / sum;
}

/// One pass over slabs of lanes: running maximum and sum in BF16, the sum of a slab in float32 added to the running
/// one. The order is that of reference::reduce_logits().
float confidence_bf16(std::span<const float> logits, std::size_t vlen, float chosen, float beta) {
  constexpr VectorPrecision kBF16 = VectorPrecision::kBF16;
  const auto power = [beta](float distance) {
    return vector_exp(kBF16, round_to(kBF16, round_to(kBF16, distance) * beta));
  };
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> slab;
  for (std::size_t first = 0; first < logits.size(); first += vlen) {
    const std::span<const float> part = logits.subspan(first, std::min(vlen, logits.size() - first));
    const float before = maximum;
    for (const float z : part) maximum = vector_max(maximum, round_to(kBF16, z));
    sum = round_to(kBF16, sum * power(before - maximum));
    slab.clear();
    for (const float z : part) slab.push_back(power(round_to(kBF16, z) - maximum));
    sum = round_to(kBF16, sum_tree(slab, sum));
  }
  return round_to(kBF16, vector_reciprocal(kBF16, sum) * power(round_to(kBF16, chosen) - maximum));
}

/// V_RED_DRAW's comparison of keys in float32 or BF16.
float draw_key(VectorPrecision precision, float logit, float inverse, double noise) {
  return round_to(precision, round_to(precision, logit * inverse) + round_to(precision, noise));
}

void set_confidence(double confidence, RowScore& score) {
  score.confidence = confidence;
  score.log_odds = std::log(confidence) - std::log1p(-confidence);
}

/// A top_k of the whole vocabulary is a filter here too.
constexpr std::int64_t kAnyVocabulary = std::numeric_limits<std::int64_t>::max();

}  // namespace

void store_logits(const NumericsProfile& profile, std::span<float> logits) {
  const auto through = [&](const OperandFormat& format) {
    // A partial last block is padded with its smallest logit, which does not change its scale.
    const std::size_t whole =
        logits.size() / static_cast<std::size_t>(format.block()) * static_cast<std::size_t>(format.block());
    round_through(format, logits.first(whole));
    if (whole == logits.size()) return;
    std::vector<float> rest(logits.begin() + static_cast<std::ptrdiff_t>(whole), logits.end());
    rest.resize(static_cast<std::size_t>(format.block()), *std::ranges::min_element(rest));
    round_through(format, rest);
    std::copy_n(rest.begin(), logits.size() - whole, logits.begin() + static_cast<std::ptrdiff_t>(whole));
  };
  through(profile.logits);
  if (profile.sampling == SamplingPrecision::kMXFP8) through(*OperandFormat::from_name("mxfp8_e4m3:32:ocp"));
}

void reduce_confidence(SamplingPrecision precision, std::span<const float> logits, std::size_t vlen, RowScore& score) {
  if (precision == SamplingPrecision::kF64 || score.token < 0) return;
  const float top = *std::ranges::max_element(logits);
  if (score.logit != top) return;  // a draw, or a forbidden arg-max: keeps the host's distribution
  const float c = precision == SamplingPrecision::kF32 ? confidence_f32(logits, top, top, 1)
                                                       : confidence_bf16(logits, vlen, top, 1);
  set_confidence(static_cast<double>(c), score);
}

bool draws_on_device(SamplingPrecision precision, const ScoreRequest& request) {
  return precision != SamplingPrecision::kF64 && request.temperature > 0 && KeptTokens(request, kAnyVocabulary).all() &&
         request.adjustments.tokens.empty() &&
         std::ranges::all_of(request.rules, [](const TokenRule& rule) { return rule.count; });
}

void reduce_draw(SamplingPrecision precision, std::span<const float> logits, std::size_t vlen,
                 const ScoreRequest& request, RowScore& score) {
  if (score.token < 0) return;
  const bool single = precision == SamplingPrecision::kF32;
  const VectorPrecision lanes = single ? VectorPrecision::kF32 : VectorPrecision::kBF16;
  const float inverse = round_to(lanes, 1 / request.temperature);
  const auto position = static_cast<std::uint32_t>(score.position + request.draw_ahead);
  struct {
    std::size_t token = 0;
    float key = -std::numeric_limits<float>::infinity();
  } chosen, winner;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    const double noise = gumbel(request.rng, RngPurpose::kToken, request.step_at(score.position), position,
                                static_cast<std::uint32_t>(t));
    const float key = draw_key(lanes, logits[t], inverse, noise);
    const bool allowed = std::ranges::none_of(request.rules, [t](const TokenRule& rule) {
      return static_cast<std::size_t>(rule.token) == t && !rule.choose;
    });
    if (allowed && key > chosen.key) chosen = {t, key};
    if (key > winner.key) winner = {t, key};
  }
  if (!(chosen.key > -std::numeric_limits<float>::infinity())) return;
  score.token = static_cast<TokenId>(chosen.token);
  score.logit = logits[chosen.token];
  score.overruled = winner.token != chosen.token;
  const float beta = request.distribution == ScoreDistribution::kSampled ? inverse : 1;
  set_confidence(
      static_cast<double>(single ? confidence_f32(logits, *std::ranges::max_element(logits), score.logit, beta)
                                 : confidence_bf16(logits, vlen, score.logit, beta)),
      score);
}

}  // namespace dllm::npu::accuracy
