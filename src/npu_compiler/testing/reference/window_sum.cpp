#include "npu_compiler/testing/reference/window_sum.h"

#include <algorithm>

namespace dllm::npu::reference {
namespace {

/// value / 2^by rounded towards minus infinity, its last bit set if anything was lost.
__int128 sticky(__int128 value, int by) {
  if (by <= 0) return value;
  if (by > 126) return value == 0 ? 0 : (value < 0 ? -1 : 1);
  const __int128 kept = value >> by;
  return (kept << by) == value ? kept : (kept | 1);
}

}  // namespace

QuantizedRow quantize(const MxFormat& format, const std::vector<float>& lanes) {
  std::vector<std::uint16_t> codes(lanes.size());
  std::vector<std::uint8_t> scales(format.scale_bytes(lanes.size()));
  mx_quantize(format, lanes.data(), lanes.size(), codes.data(), scales.data());
  return quantized_row(format, codes, scales);
}

QuantizedRow quantized_row(const MxFormat& format, const std::vector<std::uint16_t>& codes,
                           const std::vector<std::uint8_t>& scales) {
  const std::size_t n = codes.size();
  QuantizedRow row{format, {}, {}, {}, {}, std::vector<float>(n)};
  mx_dequantize(format, codes.data(), scales.data(), n, row.real.data());
  if (!format.scaled()) return row;
  const auto block = static_cast<std::size_t>(format.block);
  for (std::size_t start = 0; start < n; start += block) {
    bool zero = true, nan = scales[start / block] == kMxScaleNan;
    for (std::size_t i = start; i < start + block; ++i) {
      zero = zero && mx_fixed(format.element, codes[i]) == 0;
      nan = nan || mx_is_special(format.element, codes[i]);
    }
    for (std::size_t i = start; i < start + block; ++i) {
      row.fixed.push_back(mx_fixed(format.element, codes[i]));
      row.exponent.push_back(scales[start / block] - kMxScaleBias);
      row.zero.push_back(zero);
      row.nan.push_back(nan);
    }
  }
  return row;
}

WindowSum::WindowSum(const MxFormat& input, const MxFormat& matrix, int contraction_bits)
    : input_(input), matrix_(matrix) {
  int bits = contraction_bits;
  for (const MxFormat* format : {&input, &matrix}) {
    floating_ = floating_ || !format->scaled() || format->element == MxElement::kE5M2;
    bits += mx_element(format->element).magnitude_bits;
  }
  narrow_ = bits <= 31;
  guard_ = (narrow_ ? 31 : 63) - bits;
}

void WindowSum::add(const QuantizedRow& a, std::size_t first_a, const Terms& terms, std::size_t count,
                    std::size_t group) {
  if (floating_) {
    for (std::size_t k = 0; k < count; ++k) {
      const float product = a.real[first_a + k] * terms.of(k).real[terms.index(k)];
      sum_ += product;
    }
    return;
  }
  struct Group {
    int exponent;
    std::int64_t sum;  // of at most 32 products of 2^36
  };
  thread_local std::vector<Group> groups;
  groups.clear();
  for (std::size_t start = 0; start < count; start += group) {
    const QuantizedRow& w = terms.of(start);
    const std::size_t at = terms.index(start);
    nan_ = nan_ || a.nan[first_a + start] || w.nan[at];
    if (a.zero[first_a + start] || w.zero[at]) continue;
    Group g{a.exponent[first_a + start] + w.exponent[at], 0};
    for (std::size_t k = 0; k < group; ++k) g.sum += a.fixed[first_a + start + k] * w.fixed[at + k];
    groups.push_back(g);
  }
  if (groups.empty()) return;
  int top = groups.front().exponent;
  for (const Group& g : groups) top = std::max(top, g.exponent);
  const int reference = any_ ? std::max(reference_, top) : top;
  __int128 value = any_ ? sticky(value_, reference - reference_) : 0;
  for (const Group& g : groups)
    value += sticky(static_cast<__int128>(g.sum) * (static_cast<__int128>(1) << guard_), reference - g.exponent);
  value_ = static_cast<std::int64_t>(value);
  reference_ = reference;
  any_ = true;
}

Bf16 WindowSum::bf16() const {
  if (floating_) return f32_to_bf16(sum_);
  if (nan_) return kBf16Nan;
  if (value_ == 0) return 0;
  return fixed_to_bf16(value_, reference_ - guard_ - input_.fraction() - matrix_.fraction());
}

Bf16 WindowSum::scaled(float scale) const {
  float sum = sum_;
  if (!floating_)
    sum = nan_          ? bf16_to_f32(kBf16Nan)
          : value_ == 0 ? 0.0f
                        : fixed_to_f32(value_, reference_ - guard_ - input_.fraction() - matrix_.fraction());
  return f32_to_bf16(sum * scale);
}

}  // namespace dllm::npu::reference
