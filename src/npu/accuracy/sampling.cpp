#include "npu/accuracy/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace dllm::npu::accuracy {
namespace {

float confidence_f32(std::span<const float> logits, float top) {
  float sum = 0;
  for (const float z : logits) sum += std::exp(z - top);
  return 1.0f / sum;
}

/// One pass over slabs of lanes: running maximum and sum in BF16, the sum of a slab in float32 added to the running
/// one. The order is that of reference::reduce_logits().
float confidence_bf16(std::span<const float> logits, std::size_t vlen) {
  constexpr VectorPrecision kBF16 = VectorPrecision::kBF16;
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> slab;
  for (std::size_t first = 0; first < logits.size(); first += vlen) {
    const std::span<const float> part = logits.subspan(first, std::min(vlen, logits.size() - first));
    const float before = maximum;
    for (const float z : part) maximum = vector_max(maximum, round_to(kBF16, z));
    sum = round_to(kBF16, sum * vector_exp(kBF16, round_to(kBF16, before - maximum)));
    slab.clear();
    for (const float z : part) slab.push_back(vector_exp(kBF16, round_to(kBF16, round_to(kBF16, z) - maximum)));
    sum = round_to(kBF16, sum_tree(slab, sum));
  }
  return vector_reciprocal(kBF16, sum);
}

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
  const float c = precision == SamplingPrecision::kF32 ? confidence_f32(logits, top) : confidence_bf16(logits, vlen);
  score.confidence = static_cast<double>(c);
  score.log_odds = std::log(score.confidence) - std::log1p(-score.confidence);
}

}  // namespace dllm::npu::accuracy
