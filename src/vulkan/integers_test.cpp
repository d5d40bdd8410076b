// shaders/integers.glsl and shaders/double.glsl as C++, against this processor's floats. Needs no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/rng.h"

namespace dllm::vulkan {
namespace {

// What the shaders use of GLSL.
using uint = std::uint32_t;
using std::min;

struct uvec2 {
  uint x = 0, y = 0;
  uvec2() = default;
  explicit uvec2(uint both) : x(both), y(both) {}
  uvec2(uint low, uint high) : x(low), y(high) {}
  bool operator==(const uvec2&) const = default;
};

uint floatBitsToUint(float x) { return std::bit_cast<uint>(x); }
float uintBitsToFloat(uint bits) { return std::bit_cast<float>(bits); }
uint exponent_bits(float x) { return floatBitsToUint(x) >> 23 & 255u; }
int findMSB(uint x) { return 31 - std::countl_zero(x); }
uint uaddCarry(uint a, uint b, uint& carry) {
  const std::uint64_t sum = std::uint64_t{a} + b;
  carry = static_cast<uint>(sum >> 32);
  return static_cast<uint>(sum);
}
uint usubBorrow(uint a, uint b, uint& borrow) {
  borrow = a < b ? 1 : 0;
  return a - b;
}
void umulExtended(uint a, uint b, uint& high, uint& low) {
  const std::uint64_t product = std::uint64_t{a} * b;
  high = static_cast<uint>(product >> 32), low = static_cast<uint>(product);
}

#define kIntegers
// clang-format off
#include "vulkan/shaders/parts.glsl"
#include "vulkan/shaders/integers.glsl"
#include "vulkan/shaders/double.glsl"
// clang-format on

uvec2 bits_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  return {static_cast<uint>(bits), static_cast<uint>(bits >> 32)};
}
bool same(float a, float b) { return floatBitsToUint(a) == floatBitsToUint(b) || (std::isnan(a) && std::isnan(b)); }
bool same(const uvec2& a, double b) { return a == bits_of(b) || (none(a) && std::isnan(b)); }

class Numbers {
 public:
  uint word() { return philox4x32({count_++, 0, 0, 0}, {38, 1})[0]; }
  /// Of a model's size, of any, or small; some with few bits, so that ties occur.
  float next(uint kind) {
    const uint exponent = kind == 0 ? 117 + word() % 20 : kind == 1 ? word() % 256 : word() % 60;
    uint bits = word() & 0x807f'ffffU;
    if (word() % 4 == 0) bits &= 0xffff'f000U;
    return uintBitsToFloat(bits | exponent << 23);
  }
  double next64() {
    const uint kind = word() % 64;
    if (kind == 0) return 0;
    if (kind == 1) return std::numeric_limits<double>::infinity();
    if (kind == 2) return std::nan("");
    const std::uint64_t fraction = (std::uint64_t{word()} << 32 | word()) >> 12;
    const double mantissa = 1 + static_cast<double>(kind % 4 == 0 ? fraction & ~0x1ffffffULL : fraction) * 0x1p-52;
    return std::ldexp(mantissa, static_cast<int>(word() % 60) - 30);
  }

 private:
  uint count_ = 0;
};

TEST(Integers, FusedMultiplyAddsAreRoundedOnce) {
  Numbers numbers;
  for (uint i = 0; i < 300'000; ++i) {
    const float a = numbers.next(i % 3), b = numbers.next(i % 3);
    float c = numbers.next(i % 3);
    if (i % 4 == 1) c = -(a * b) * (1 + static_cast<float>(numbers.word() % 4) * 0x1p-23f);
    if (i % 4 == 2) c = std::ldexp(a * b, 30 - static_cast<int>(numbers.word() % 60));
    ASSERT_TRUE(same(fused_by_integers(a, b, c), std::fma(a, b, c))) << std::hexfloat << a << ' ' << b << ' ' << c;
    ASSERT_TRUE(same(wide(a), static_cast<double>(a)));
  }
}

TEST(Integers, Float64IsAsThisProcessors) {
  Numbers numbers;
  for (uint i = 0; i < 200'000; ++i) {
    const double a = numbers.next64();
    double b = numbers.next64();
    // Ties, and sums whose smaller part is lost.
    if (i % 3 == 0) b = std::ldexp(a, -static_cast<int>(numbers.word() % 60)) * (1 + (numbers.word() % 4) * 0x1p-52);
    if (i % 3 == 1) b = std::ldexp(1.0, std::ilogb(a == 0 || !std::isfinite(a) ? 1 : a) - 53);
    ASSERT_TRUE(same(sum64(bits_of(a), bits_of(b)), a + b)) << std::hexfloat << a << ' ' << b;
    const double c = i % 2 == 0 ? a : -a;
    ASSERT_TRUE(same(product64(bits_of(c), bits_of(b)), c * b)) << std::hexfloat << c << ' ' << b;
    ASSERT_TRUE(same(quotient64(bits_of(c), bits_of(b)), c / b)) << std::hexfloat << c << ' ' << b;
    const double d = std::ldexp(c, static_cast<int>(numbers.word() % 300) - 170);
    ASSERT_TRUE(same(narrow(bits_of(d)), static_cast<float>(d))) << std::hexfloat << d;
  }
}

}  // namespace
}  // namespace dllm::vulkan
