#include "npu/accuracy/vector_unit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "numerics/half.h"

namespace dllm::npu::accuracy {
namespace {

/// `value` rounded toward zero, with the last bit set if inexact: rounding that to fewer bits equals rounding `value`.
float odd_float(double value) {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace

std::string_view precision_name(VectorPrecision precision) {
  switch (precision) {
    case VectorPrecision::kF32:
      return "f32";
    case VectorPrecision::kF16:
      return "f16";
    case VectorPrecision::kBF16:
      return "bf16";
  }
  return "";
}

float round_rare_double(VectorPrecision precision, double value) { return round_to(precision, odd_float(value)); }

float vector_exp(VectorPrecision precision, float x) {
  if (precision == VectorPrecision::kBF16) return bf16_to_f32(bf16_exp(f32_to_bf16(x)));
  return round_to(precision, std::exp(std::clamp(static_cast<double>(x), -88.0, 88.0)));
}

float vector_reciprocal(VectorPrecision precision, float x) {
  if (precision == VectorPrecision::kBF16) return bf16_to_f32(bf16_reciprocal(f32_to_bf16(x)));
  return round_to(precision, 1.0 / static_cast<double>(x));
}

float vector_sqrt(VectorPrecision precision, float x) {
  if (precision == VectorPrecision::kBF16) return bf16_to_f32(bf16_sqrt(f32_to_bf16(x)));
  return round_to(precision, std::sqrt(static_cast<double>(x)));
}

void round_lanes(VectorPrecision precision, std::span<float> lanes) {
  if (precision == VectorPrecision::kF32) return;
  if (precision == VectorPrecision::kF16) {
    for (float& lane : lanes) lane = round_f16(lane);
    return;
  }
  for (float& lane : lanes) lane = bf16_to_f32(f32_to_bf16(lane));
}

void exp_lanes(VectorPrecision precision, std::span<float> lanes) {
  for (float& lane : lanes) lane = vector_exp(precision, lane);
}

void reciprocal_lanes(VectorPrecision precision, std::span<float> lanes) {
  for (float& lane : lanes) lane = vector_reciprocal(precision, lane);
}

float sum_tree(std::span<const float> lanes, float running) {
  thread_local std::vector<float> sums;
  sums.assign(std::bit_ceil(std::max<std::size_t>(1, lanes.size())), 0.0f);
  std::ranges::copy(lanes, sums.begin());
  for (std::size_t n = sums.size() / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return running + sums[0];
}

}  // namespace dllm::npu::accuracy
