#include "numerics/mx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "numerics/half.h"
#include "numerics/packed.h"

namespace dllm {
namespace {

constexpr MxElementInfo kElements[kMxNamedCount] = {
    {"mxint4", 4, 0, 3, 0, 0, 7.0, 3},
    {"mxint8", 8, 0, 7, 0, 0, 127.0, 7},
    {"mxfp4_e2m1", 4, 2, 1, 1, 2, 6.0, 4},
    {"mxfp6_e2m3", 6, 2, 3, 1, 2, 7.5, 6},
    {"mxfp6_e3m2", 6, 3, 2, 3, 4, 28.0, 9},
    {"mxfp8_e4m3", 8, 4, 3, 7, 8, 448.0, 18},
    {"mxfp8_e5m2", 8, 5, 2, 15, 15, 57344.0, 32},
    {"bf16", 16, 8, 7, 127, 127, 0x1.fep127, 0},
    {"fp16", 16, 5, 10, 15, 15, 65504.0, 0},
    {"q4_0", 4, 0, 3, 0, 0, 8.0, 0},
    {"q8_0", 8, 0, 7, 0, 0, 127.0, 0},
};

constexpr std::string_view kRules[kMxRuleCount] = {"ocp", "plena", "plena-symmetric"};

/// Largest magnitude; NaN if any element is NaN.
float magnitude(const float* x, int n) {
  // As integers, magnitudes order like floats and NaNs are above infinity.
  std::uint32_t top = 0;
  for (int i = 0; i < n; ++i) top = std::max(top, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  return std::bit_cast<float>(top);
}

int shared_exponent(const MxFormat& format, float top) {
  const int floor_log2 = std::ilogb(top);
  const bool integer = mx_element(format.element).exponent_bits == 0;
  const bool ceiling =
      integer && format.rule != MxRule::kOcp && std::ldexp(1.0, floor_log2) != static_cast<double>(top);
  return std::clamp(floor_log2 + (ceiling ? 1 : 0) - mx_element(format.element).emax, -127, 127);
}

/// q = x * 2^shift to nearest even, saturated to [low, high].
void quantize_integers(const float* x, int n, int shift, int low, int high, std::uint32_t mask, std::uint16_t* codes) {
  if (shift >= -126 && shift <= 127) {
    // Adding 1.5 * 2^23 rounds to an integer in the FPU's own mode (nearest even); |x * 2^shift| <= 2^8 here. If the
    // product underflows it is far below 1/2, so it rounds to 0 as it should. This loop vectorises; nearbyint() would
    // not.
    const float factor = std::ldexp(1.0f, shift);
    constexpr float kMagic = 0x1.8p23f;
    for (int i = 0; i < n; ++i) {
      const int q = static_cast<int>((x[i] * factor + kMagic) - kMagic);
      codes[i] = static_cast<std::uint16_t>(static_cast<std::uint32_t>(std::clamp(q, low, high)) & mask);
    }
    return;
  }
  for (int i = 0; i < n; ++i) {
    const int q = static_cast<int>(std::nearbyint(std::ldexp(static_cast<double>(x[i]), shift)));
    codes[i] = static_cast<std::uint16_t>(static_cast<std::uint32_t>(std::clamp(q, low, high)) & mask);
  }
}

/// 2^exponent, of a normal number.
double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52); }

/// `value`: 0 or a normal number. Exponents are read and made as bits: ilogb() and ldexp() took a quarter of the time
/// of answers in MXFP8.
std::uint16_t quantize_minifloat(const MxElementInfo& e, double value) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (e.bits - 1) : 0u;
  const double magnitude = std::fabs(value);
  if (magnitude == 0.0) return static_cast<std::uint16_t>(sign);
  const int floor_log2 = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;
  int exponent = std::max(floor_log2, 1 - e.bias);  // subnormals keep the smallest normal step
  constexpr double kMagic = 0x1p52;                 // rounds to an integer, as in quantize_integers()
  double steps = (magnitude * power_of_two(e.mantissa_bits - exponent) + kMagic) - kMagic;
  if (steps * power_of_two(exponent - e.mantissa_bits) > e.max) {  // saturate
    exponent = e.emax;
    steps = e.max * power_of_two(e.mantissa_bits - exponent);
  }
  auto q = static_cast<std::uint32_t>(steps);
  if (q == 2u << e.mantissa_bits) {  // rounded up to the next power of two
    q >>= 1;
    ++exponent;
  }
  const std::uint32_t one = 1u << e.mantissa_bits;
  const std::uint32_t body =
      q < one ? q : (static_cast<std::uint32_t>(exponent + e.bias) << e.mantissa_bits) | (q - one);
  return static_cast<std::uint16_t>(sign | body);
}

void quantize_block(const MxFormat& format, const float* x, std::uint16_t* codes, std::uint8_t& scale) {
  const MxElementInfo& e = mx_element(format.element);
  const float top = magnitude(x, format.block);
  if (!(top <= std::numeric_limits<float>::max()) || top == 0.0f) {
    scale = top == 0.0f ? 0 : kMxScaleNan;
    std::fill_n(codes, format.block, std::uint16_t{0});
    return;
  }
  const int exponent = shared_exponent(format, top);
  scale = static_cast<std::uint8_t>(exponent + kMxScaleBias);
  if (e.exponent_bits == 0) {
    const int high = (1 << (e.bits - 1)) - 1;
    const int low = format.rule == MxRule::kPlena ? -high - 1 : -high;
    quantize_integers(x, format.block, format.fraction() - exponent, low, high, (1u << e.bits) - 1u, codes);
    return;
  }
  // Exact, and normal: x[i] is a float, |exponent| is at most 127.
  const double factor = power_of_two(-exponent);
  for (int i = 0; i < format.block; ++i) codes[i] = quantize_minifloat(e, static_cast<double>(x[i]) * factor);
}

/// Values of the codes, 2^-fraction included: their product with a scale is exact in double and in float.
using ElementValues = std::array<double, 256>;

ElementValues tabulate(const MxFormat& format) {
  const MxElementInfo& e = mx_element(format.element);
  ElementValues values = {};
  for (std::uint32_t code = 0; code < 1u << e.bits; ++code) {
    const bool negative = (code >> (e.bits - 1)) != 0;
    values[code] = std::ldexp(static_cast<double>(mx_fixed(format.element, code)), -format.fraction());
    if (e.exponent_bits != 0 && values[code] == 0.0 && negative) values[code] = -0.0;
    if (mx_is_special(format.element, code)) {
      const bool infinity = format.element == MxElement::kE5M2 && (code & 3) == 0;
      values[code] = infinity ? (negative ? -HUGE_VAL : HUGE_VAL) : std::numeric_limits<double>::quiet_NaN();
    }
  }
  return values;
}

const ElementValues& element_values(const MxFormat& format) {
  static const auto tables = [] {
    std::array<std::array<ElementValues, kMxRuleCount>, kMxElementCount> all;
    for (std::size_t element = 0; element < all.size(); ++element)
      for (std::size_t rule = 0; rule < kMxRuleCount; ++rule)
        all[element][rule] = tabulate({static_cast<MxElement>(element), static_cast<MxRule>(rule), 32});
    return all;
  }();
  return tables[static_cast<std::size_t>(format.element)][static_cast<std::size_t>(format.rule)];
}

}  // namespace

const MxElementInfo& mx_element(MxElement element) { return kElements[static_cast<std::size_t>(element)]; }

int MxFormat::fraction() const {
  const MxElementInfo& e = mx_element(element);
  if (e.exponent_bits != 0) return e.bias - 1 + e.mantissa_bits;
  return rule == MxRule::kOcp ? e.bits - 2 : e.bits - 1;
}

std::optional<MxFormat> mx_format_from_name(std::string_view name) {
  std::array<std::string_view, 3> parts = {};
  std::size_t count = 0;
  while (count < parts.size()) {
    const std::size_t colon = std::min(name.find(':'), name.size());
    parts[count++] = name.substr(0, colon);
    if (colon == name.size()) break;
    name.remove_prefix(colon + 1);
    if (count == parts.size()) return std::nullopt;
  }
  for (int i = 0; i < kMxNamedCount; ++i) {
    if (parts[0] != kElements[i].name) continue;
    MxFormat format{static_cast<MxElement>(i), MxRule::kOcp, 32};
    if (!format.scaled() || format.packed()) {
      format.block = format.packed() ? kPackedBlock : 1;
      return count == 1 ? std::optional(format) : std::nullopt;
    }
    if (count > 1) format.block = parts[1] == "8" ? 8 : parts[1] == "16" ? 16 : parts[1] == "32" ? 32 : 0;
    const auto rule = std::ranges::find(kRules, count > 2 ? parts[2] : kRules[0]);
    if (format.block == 0 || rule == std::end(kRules)) return std::nullopt;
    format.rule = static_cast<MxRule>(rule - std::begin(kRules));
    return format;
  }
  return std::nullopt;
}

std::string mx_format_name(const MxFormat& format) {
  std::string name(mx_element(format.element).name);
  if (!format.scaled() || format.packed()) return name;
  return name + ":" + std::to_string(format.block) + ":" + std::string(kRules[static_cast<std::size_t>(format.rule)]);
}

std::uint32_t mx_format_number(const MxFormat& format) {
  return static_cast<std::uint32_t>(format.element) |
         static_cast<std::uint32_t>(std::countr_zero(static_cast<std::uint32_t>(format.block))) << 4 |
         static_cast<std::uint32_t>(format.rule) << 8;
}

std::optional<MxFormat> mx_format_from_number(std::uint32_t number) {
  const std::uint32_t element = number & 15, log2_block = number >> 4 & 15, rule = number >> 8;
  if (element >= kMxNamedCount || rule >= kMxRuleCount) return std::nullopt;
  const MxFormat format{static_cast<MxElement>(element), static_cast<MxRule>(rule), 1 << log2_block};
  const bool good = format.packed()   ? format.block == kPackedBlock && rule == 0
                    : format.scaled() ? format.block == 8 || format.block == 16 || format.block == 32
                                      : format.block == 1 && rule == 0;
  return good ? std::optional(format) : std::nullopt;
}

float mx_scale_value(std::uint8_t scale) {
  if (scale == kMxScaleNan) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(scale == 0 ? 0x00400000u : std::uint32_t{scale} << 23);
}

std::int64_t mx_fixed(MxElement element, std::uint32_t code) {
  const MxElementInfo& e = mx_element(element);
  if (e.exponent_bits == 0) {
    const std::uint32_t sign = 1u << (e.bits - 1);
    return static_cast<std::int32_t>((code ^ sign) - sign);
  }
  if (mx_is_special(element, code)) return 0;
  const std::uint32_t mantissa = code & ((1u << e.mantissa_bits) - 1);
  const std::uint32_t exponent = code >> e.mantissa_bits & ((1u << e.exponent_bits) - 1);
  const std::int64_t value =
      exponent == 0 ? mantissa : std::int64_t{mantissa | 1u << e.mantissa_bits} << (exponent - 1);
  return (code >> (e.bits - 1) & 1) != 0 ? -value : value;
}

bool mx_is_special(MxElement element, std::uint32_t code) {
  if (element == MxElement::kE4M3) return (code & 0x7f) == 0x7f;
  if (element == MxElement::kE5M2) return (code & 0x7c) == 0x7c;
  if (element == MxElement::kF16) return (code & 0x7c00) == 0x7c00;
  return element == MxElement::kBF16 && (code & 0x7f80) == 0x7f80;
}

void mx_quantize(const MxFormat& format, const float* x, std::size_t n, std::uint16_t* codes, std::uint8_t* scales) {
  if (!format.scaled()) {
    const bool half = format.element == MxElement::kF16;
    for (std::size_t i = 0; i < n; ++i) codes[i] = half ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
    return;
  }
  if (format.packed()) return quantize_packed(format.element, x, n, codes, scales);
  const auto block = static_cast<std::size_t>(format.block);
  for (std::size_t i = 0; i < n; i += block) quantize_block(format, x + i, codes + i, scales[i / block]);
}

void mx_dequantize(const MxFormat& format, const std::uint16_t* codes, const std::uint8_t* scales, std::size_t n,
                   float* x) {
  if (!format.scaled()) {
    const bool half = format.element == MxElement::kF16;
    for (std::size_t i = 0; i < n; ++i) x[i] = half ? f16_to_f32(codes[i]) : bf16_to_f32(codes[i]);
    return;
  }
  if (format.packed()) return dequantize_packed(format.element, codes, scales, n, x);
  const auto block = static_cast<std::size_t>(format.block);
  const ElementValues& values = element_values(format);
  for (std::size_t i = 0; i < n; i += block) {
    const double scale = static_cast<double>(mx_scale_value(scales[i / block]));
    for (std::size_t j = 0; j < block; ++j) x[i + j] = static_cast<float>(values[codes[i + j]] * scale);
  }
}

void mx_pack(int width, const std::uint16_t* codes, std::size_t n, std::byte* bytes) {
  std::uint32_t buffer = 0;
  int filled = 0;
  for (std::size_t i = 0; i < n; ++i) {
    buffer |= std::uint32_t{codes[i]} << filled;
    for (filled += width; filled >= 8; filled -= 8, buffer >>= 8) *bytes++ = static_cast<std::byte>(buffer & 0xff);
  }
}

void mx_unpack(int width, const std::byte* bytes, std::size_t n, std::uint16_t* codes) {
  if (width == 8) {
    for (std::size_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint16_t>(bytes[i]);
    return;
  }
  if (width == 16) {
    std::memcpy(codes, bytes, 2 * n);
    return;
  }
  std::uint32_t buffer = 0;
  int filled = 0;
  const std::uint32_t mask = (1u << width) - 1u;
  for (std::size_t i = 0; i < n; ++i) {
    while (filled < width) {
      buffer |= static_cast<std::uint32_t>(*bytes++) << filled;
      filled += 8;
    }
    codes[i] = static_cast<std::uint16_t>(buffer & mask);
    buffer >>= width;
    filled -= width;
  }
}

}  // namespace dllm
