#include "npu_backend/accuracy/vector_unit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "npu_backend/accuracy/lane_kernel.h"
#include "numerics/half.h"

namespace dllm::npu::accuracy {
namespace {

/// A function of all numbers of a format, as floats.
std::vector<float> tabulate(LaneFormat format, Bf16 (*function)(Bf16)) {
  std::vector<float> values(65536);
  for (std::uint32_t bits = 0; bits < values.size(); ++bits)
    values[bits] = lane_to_f32(format, function(static_cast<Bf16>(bits)));
  return values;
}

/// The function of every lane, which the precision represents.
void look_up(const std::vector<float>& bf16, const std::vector<float>& f16, VectorPrecision precision,
             std::span<float> lanes) {
  if (precision == VectorPrecision::kBF16)
    for (float& lane : lanes) lane = bf16[f32_to_bf16(lane)];
  else
    for (float& lane : lanes) lane = f16[f32_to_f16(lane)];
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

float round_rare_double(VectorPrecision precision, double value) { return round_to(precision, to_odd_float(value)); }

float round_rare_float(VectorPrecision precision, float value) { return round_to(precision, value); }

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
  lane_kernel().round(precision, lanes.data(), static_cast<std::int64_t>(lanes.size()));
}

void exp_lanes(VectorPrecision precision, std::span<float> lanes) {
  if (precision == VectorPrecision::kF32) {
    for (float& lane : lanes) lane = vector_exp(precision, lane);
    return;
  }
  static const std::vector<float> bf16 = tabulate(LaneFormat::kBf16, bf16_exp),
                                  f16 = tabulate(LaneFormat::kF16, f16_exp);
  look_up(bf16, f16, precision, lanes);
}

void reciprocal_lanes(VectorPrecision precision, std::span<float> lanes) {
  if (precision == VectorPrecision::kF32) {
    for (float& lane : lanes) lane = vector_reciprocal(precision, lane);
    return;
  }
  static const std::vector<float> bf16 = tabulate(LaneFormat::kBf16, bf16_reciprocal),
                                  f16 = tabulate(LaneFormat::kF16, f16_reciprocal);
  look_up(bf16, f16, precision, lanes);
}

float sum_tree(std::span<const float> lanes, float running) {
  thread_local std::vector<float> sums;
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(1, lanes.size()));
  sums.resize(size);
  std::fill(std::ranges::copy(lanes, sums.begin()).out, sums.end(), 0.0f);
  for (std::size_t n = sums.size() / 2; n > 0; n /= 2)
    for (std::size_t i = 0; i < n; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return running + sums[0];
}

}  // namespace dllm::npu::accuracy
