#pragma once

// Loops over lanes as the compiler vectorises them. Included once per instruction set, like window_kernel-inl.h, and
// likewise without functions that other sources share.

#include "npu_backend/accuracy/lane_kernel.h"
#include "npu_backend/accuracy/operand_format.h"

namespace dllm::npu::accuracy {

namespace DLLM_WINDOW_ISA {
namespace {

constexpr std::int64_t kRun = 64;  // lanes whose rare cases are looked for together

[[gnu::always_inline]] inline float to_bf16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t nearest = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
  const std::uint32_t quiet = (bits | 0x400000u) & 0xffff0000u;
  return __builtin_bit_cast(float, (bits & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
}

/// Of normal numbers of FP16, and zeros.
[[gnu::always_inline]] inline float to_f16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return __builtin_bit_cast(float, (bits + 0xfffu + (bits >> 13 & 1u)) >> 13 << 13);
}
[[gnu::always_inline]] inline std::uint32_t rare_f16(float value) {
  const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fffffffu;
  return (magnitude != 0 && magnitude < 0x38800000u) || magnitude >= 0x477ff000u ? 1u : 0u;  // 2^-14, 65520
}

/// out[i] = value(i), rounded.
template <class Value>
[[gnu::always_inline]] inline void rounded(VectorPrecision precision, std::int64_t n, float* out, const Value& value) {
  if (precision == VectorPrecision::kF32) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = value(i);
    return;
  }
  if (precision == VectorPrecision::kBF16) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = to_bf16(value(i));
    return;
  }
  for (std::int64_t first = 0; first < n; first += kRun) {
    const std::int64_t end = first + kRun < n ? first + kRun : n;
    float exact[kRun];
    std::uint32_t rare = 0;
    for (std::int64_t i = first; i < end; ++i) exact[i - first] = value(i);
    for (std::int64_t i = first; i < end; ++i) rare |= rare_f16(exact[i - first]);
    for (std::int64_t i = first; i < end; ++i) out[i] = to_f16(exact[i - first]);
    for (std::int64_t i = first; rare != 0 && i < end; ++i)
      if (rare_f16(exact[i - first]) != 0) out[i] = round_rare_float(precision, exact[i - first]);
  }
}

void round_all(VectorPrecision precision, float* lanes, std::int64_t n) {
  rounded(precision, n, lanes, [=](std::int64_t i) { return lanes[i]; });
}

void scale_all(VectorPrecision precision, const double* sums, float scale, std::int64_t n, float* out) {
  rounded(precision, n, out, [=](std::int64_t i) { return static_cast<float>(sums[i]) * scale; });
}

void add_all(VectorPrecision precision, float* a, const float* b, std::int64_t n) {
  rounded(precision, n, a, [=](std::int64_t i) { return a[i] + b[i]; });
}

/// As vector_max(): of integers in the order of the floats, with NaNs above all.
float maximum(const float* lanes, const std::uint8_t* seen, std::int64_t n, float least) {
  const auto key_of = [](float value) {
    const auto bits = __builtin_bit_cast(std::int32_t, value);
    return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : bits < 0 ? bits ^ 0x7fffffff : bits;
  };
  std::int32_t top = key_of(least);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t key = seen[i] != 0 ? key_of(lanes[i]) : key_of(least);
    top = key > top ? key : top;
  }
  return __builtin_bit_cast(float, top < 0 ? top ^ 0x7fffffff : top);
}

/// Of doubles in the precision's normal range, and zeros: see round_to(VectorPrecision, double).
template <int kDropped>
[[gnu::always_inline]] inline float drop_bits(double value) {
  auto bits = __builtin_bit_cast(std::uint64_t, value);
  bits += (std::uint64_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  return static_cast<float>(__builtin_bit_cast(double, bits >> kDropped << kDropped));
}

template <int kDropped>
[[gnu::always_inline]] inline void round_doubles(VectorPrecision precision, double least, double end,
                                                 const double* sums, std::int64_t n, float* out) {
  for (std::int64_t first = 0; first < n; first += kRun) {
    const std::int64_t last = first + kRun < n ? first + kRun : n;
    std::uint64_t rare = 0;
    const auto is_rare = [=](double value) {
      const double magnitude = value < 0 ? -value : value;
      return !((magnitude > least && magnitude < end) || value == 0) ? std::uint64_t{1} : std::uint64_t{0};
    };
    for (std::int64_t i = first; i < last; ++i) rare |= is_rare(sums[i]);
    for (std::int64_t i = first; i < last; ++i) out[i] = drop_bits<kDropped>(sums[i]);
    for (std::int64_t i = first; rare != 0 && i < last; ++i)
      if (is_rare(sums[i]) != 0) out[i] = round_rare_double(precision, sums[i]);
  }
}

void round_sums(VectorPrecision precision, const double* sums, std::int64_t n, float* out) {
  switch (precision) {
    case VectorPrecision::kF32:
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(sums[i]);
      return;
    case VectorPrecision::kBF16:
      return round_doubles<45>(precision, 0x1p-126, 0x1p127, sums, n, out);
    case VectorPrecision::kF16:
      return round_doubles<42>(precision, 0x1p-14, 65520, sums, n, out);
  }
}

/// 2^exponent, for normal numbers.
[[gnu::always_inline]] inline double power(std::int64_t exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// An element in units of its format's smallest step. `value`: an element divided by its block's scale.
[[gnu::always_inline]] inline float minifloat(const LaneFormatInfo& f, double value) {
  constexpr double kMagic = 0x1p52;  // rounds to an integer, nearest even
  const double magnitude = __builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, value) & 0x7fffffffffffffffu);
  const std::int64_t floor_log2 = static_cast<std::int64_t>(__builtin_bit_cast(std::uint64_t, magnitude) >> 52) - 1023;
  const std::int64_t least = 1 - f.bias, exponent = floor_log2 < least ? least : floor_log2;  // zeros too
  const double steps = (magnitude * power(f.mantissa_bits - exponent) + kMagic) - kMagic;
  const double nearest = steps * power(exponent - f.mantissa_bits);
  const double kept = (nearest > f.max ? f.max : nearest) * power(f.bias - 1 + f.mantissa_bits);
  return static_cast<float>(value < 0 ? 0.0 - kept : kept);
}

void integers(const LaneFormatInfo& f, const float* x, std::int64_t n, float* lanes, std::int16_t* exponents) {
  for (std::int64_t first = 0; first < n; first += f.block) {
    const float* from = x + first;
    float* to = lanes + first;
    std::uint32_t top = 0;
    for (int i = 0; i < f.block; ++i) {
      const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, from[i]) & 0x7fffffffu;
      top = magnitude > top ? magnitude : top;
    }
    std::int16_t& exponent = exponents[first / f.block];
    if (top == 0 || top >= 0x7f800000u) {
      exponent = top == 0 ? kZeroExponent : kNanExponent;
      for (int i = 0; i < f.block; ++i) to[i] = 0;
      continue;
    }
    const auto bits = __builtin_bit_cast(std::uint64_t, static_cast<double>(__builtin_bit_cast(float, top)));
    int shared = static_cast<int>(bits >> 52) - 1023 - f.emax;
    if (f.ceiling && (bits & 0xfffffffffffffu) != 0) ++shared;
    shared = shared < -127 ? -127 : shared > 127 ? 127 : shared;
    std::uint32_t any = 0;
    const int shift = f.fraction - shared;
    if (f.exponent_bits == 0 && shift >= -126 && shift <= 127) {
      // As in mx_quantize(): |x 2^shift| <= 2^8, and a product that underflows rounds to 0.
      constexpr float kMagic = 0x1.8p23f;
      const auto factor = static_cast<float>(power(shift));
      const auto low = static_cast<float>(f.low), high = static_cast<float>(f.high);
      for (int i = 0; i < f.block; ++i) {
        const float q = (from[i] * factor + kMagic) - kMagic;
        to[i] = q < low ? low : q > high ? high : q;
      }
    } else if (f.exponent_bits == 0) {
      constexpr double kMagic = 0x1.8p52;
      const double factor = power(shift);
      const auto low = static_cast<double>(f.low), high = static_cast<double>(f.high);
      for (int i = 0; i < f.block; ++i) {
        const double q = (static_cast<double>(from[i]) * factor + kMagic) - kMagic;
        to[i] = static_cast<float>(q < low ? low : q > high ? high : q);
      }
    } else {
      const double factor = power(-shared);
      for (int i = 0; i < f.block; ++i) to[i] = minifloat(f, static_cast<double>(from[i]) * factor);
    }
    for (int i = 0; i < f.block; ++i) any |= to[i] != 0 ? 1u : 0u;
    exponent = any == 0 ? kZeroExponent : static_cast<std::int16_t>(shared);
  }
}

}  // namespace

// One unit per instruction set includes this file. NOLINTNEXTLINE(misc-definitions-in-headers)
void fill_lane_kernel(LaneKernel& kernel) {
  kernel.round = round_all;
  kernel.round_sums = round_sums;
  kernel.scale_sums = scale_all;
  kernel.add = add_all;
  kernel.integers = integers;
  kernel.maximum = maximum;
}

}  // namespace DLLM_WINDOW_ISA
}  // namespace dllm::npu::accuracy
