#include "quant/block_grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "numerics/half.h"
#include "numerics/mx_tensor.h"

namespace dllm {
namespace {

constexpr double kClips[] = {1.0, 0.995, 0.99, 0.97, 0.95, 0.93, 0.9, 0.8, 0.7, 0.6, 0.5};

/// Magnitudes of an element's codes in its smallest step, ascending; specials are left out.
const std::vector<double>& magnitudes_of(MxElement element) {
  static const auto tables = [] {
    std::array<std::vector<double>, kMxElementCount> all;
    for (std::size_t e = 0; e < all.size(); ++e) {
      const auto each = static_cast<MxElement>(e);
      const MxElementInfo& info = mx_element(each);
      if (info.exponent_bits == 0) continue;
      for (std::uint32_t code = 0; code < 1u << (info.bits - 1); ++code)
        if (!mx_is_special(each, code)) all[e].push_back(static_cast<double>(mx_fixed(each, code)));
    }
    return all;
  }();
  return tables[static_cast<std::size_t>(element)];
}

double signed_extreme(std::span<const double> block) {
  return *std::ranges::max_element(block, {}, [](double x) { return std::fabs(x); });
}

/// Binary16, of either sign at most its largest number.
std::uint16_t half_of(double x) {
  constexpr double kLargest = 65504;
  return f32_to_f16(static_cast<float>(std::clamp(x, -kLargest, kLargest)));
}

}  // namespace

Levels::Level Levels::nearest(double x) const {
  if (step_ == 0) return {static_cast<std::uint16_t>(offset_ & mask_), 0.0};
  const double steps = x / step_;
  if (magnitudes_ == nullptr) {
    const double level = std::clamp(std::nearbyint(steps), static_cast<double>(low_), static_cast<double>(high_));
    return {static_cast<std::uint16_t>((static_cast<int>(level) + offset_) & mask_), level * step_};
  }
  const std::vector<double>& all = *magnitudes_;
  const double magnitude = std::fabs(steps);
  const auto above = std::ranges::lower_bound(all, magnitude);
  auto code = static_cast<std::size_t>(above - all.begin());
  if (code == all.size()) {
    --code;
  } else if (code > 0) {
    const double up = all[code] - magnitude, down = magnitude - all[code - 1];
    if (down < up || (down == up && code % 2 != 0)) --code;
  }
  const bool negative = std::signbit(x);
  const double value = all[code] * step_;
  const auto sign = static_cast<std::uint16_t>(negative ? offset_ : 0);
  return {static_cast<std::uint16_t>(code | sign), negative ? -value : value};
}

std::optional<BlockGrid> BlockGrid::of(TensorType type) {
  BlockGrid grid;
  grid.type_ = type;
  if (const auto format = mx_format_of(type)) {
    grid.mx_ = *format;
    grid.elements_ = format->block;
    return grid;
  }
  if (type == TensorType::kQ4_0 || type == TensorType::kQ8_0) return grid;
  return std::nullopt;
}

void BlockGrid::scales(std::span<const double> block, std::vector<std::uint16_t>& out) const {
  out.clear();
  if (mx_.scaled()) {
    std::array<float, 32> values;
    std::array<std::uint16_t, 32> codes;
    std::uint8_t own = 0;
    std::ranges::transform(block, values.begin(), [](double x) { return static_cast<float>(x); });
    mx_quantize(mx_, values.data(), block.size(), codes.data(), &own);
    out.push_back(own);
    if (own == 0) return;
    for (const int change : {-1, -2, 1})
      if (own + change > 0 && own + change < kMxScaleNan) out.push_back(static_cast<std::uint16_t>(own + change));
    return;
  }
  const double extreme = signed_extreme(block);
  const double top = type_ == TensorType::kQ4_0 ? -8.0 : 127.0, other = 7.0;
  for (const double clip : kClips) {
    if (f16_to_f32(half_of(clip * extreme / top)) == 0) break;
    out.push_back(half_of(clip * extreme / top));
    if (type_ == TensorType::kQ4_0) out.push_back(half_of(clip * extreme / other));
  }
  if (out.empty()) out.push_back(0);
}

Levels BlockGrid::levels(std::uint16_t scale) const {
  Levels levels;
  if (!mx_.scaled()) {
    const bool nibbles = type_ == TensorType::kQ4_0;
    levels.step_ = static_cast<double>(f16_to_f32(scale));
    levels.low_ = nibbles ? -8 : -127;
    levels.high_ = nibbles ? 7 : 127;
    levels.offset_ = nibbles ? 8 : 0;
    levels.mask_ = nibbles ? 15 : 255;
    return levels;
  }
  const MxElementInfo& element = mx_element(mx_.element);
  levels.step_ = std::ldexp(1.0, scale - kMxScaleBias - mx_.fraction());
  levels.mask_ = static_cast<std::uint16_t>((1u << element.bits) - 1u);
  if (element.exponent_bits != 0) {
    levels.magnitudes_ = &magnitudes_of(mx_.element);
    levels.offset_ = static_cast<std::uint16_t>(1u << (element.bits - 1));
    return levels;
  }
  levels.high_ = (1 << (element.bits - 1)) - 1;
  levels.low_ = mx_.rule == MxRule::kPlena ? -levels.high_ - 1 : -levels.high_;
  return levels;
}

void BlockGrid::write(std::span<const std::uint16_t> codes, std::uint16_t scale, std::byte* to) const {
  if (mx_.scaled()) return mx_write_block(mx_, codes.data(), static_cast<std::uint8_t>(scale), to);
  std::memcpy(to, &scale, 2);
  to += 2;
  if (type_ == TensorType::kQ8_0) {
    for (const std::uint16_t code : codes) *to++ = static_cast<std::byte>(code);
    return;
  }
  for (std::size_t i = 0; i < 16; ++i) *to++ = static_cast<std::byte>(codes[i] | codes[i + 16] << 4);
}

}  // namespace dllm
