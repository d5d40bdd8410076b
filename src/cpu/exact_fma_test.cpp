#include "cpu/kernels/exact_fma.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace dllm::cpu {
namespace {

template <class T>
::testing::AssertionResult same_bits(T a, T b, T c) {
  const T mine = exact_fma(a, b, c), wanted = std::fma(a, b, c);
  if (std::isnan(wanted) ? std::isnan(mine) : mine == wanted && std::signbit(mine) == std::signbit(wanted))
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << std::hexfloat << "fma(" << a << ", " << b << ", " << c << ") is " << wanted
                                       << ", not " << mine;
}

/// Any bits: all exponents, subnormal and not finite numbers.
template <class T, class Bits>
void expect_exact(std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  const auto any = [&random] { return std::bit_cast<T>(static_cast<Bits>(random())); };
  const auto near_one = [&] {
    return std::ldexp(std::frexp(any(), std::array<int, 1>().data()), static_cast<int>(random() % 64) - 32);
  };
  for (int i = 0; i < count; ++i) {
    ASSERT_TRUE(same_bits<T>(any(), any(), any()));
    const T a = near_one(), b = near_one();
    ASSERT_TRUE(same_bits<T>(a, b, near_one()));
    ASSERT_TRUE(same_bits<T>(a, b, -(a * b)));
    // Where the result is subnormal, and where the addend is a few bits next to the product.
    const T small = std::ldexp(a, std::numeric_limits<T>::min_exponent - static_cast<int>(random() % 60));
    ASSERT_TRUE(same_bits<T>(small, b, std::ldexp(near_one(), std::numeric_limits<T>::min_exponent)));
    ASSERT_TRUE(same_bits<T>(a, b, std::ldexp(-(a * b), static_cast<int>(random() % 240) - 120)));
  }
}

// C's functions are the oracle, which are exact in glibc and where a processor has the instruction.
TEST(ExactFma, HasTheBitsOfTheLibraryInSinglePrecision) { expect_exact<float, std::uint32_t>(1, 100000); }
TEST(ExactFma, HasTheBitsOfTheLibraryInDoublePrecision) { expect_exact<double, std::uint64_t>(2, 100000); }

float twice_rounded(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c));
}
double twice_rounded(double a, double b, double c) {
  return static_cast<double>(static_cast<long double>(a) * static_cast<long double>(b) + static_cast<long double>(c));
}
template <class T>
T not_fused(T a, T b, T c) {
  volatile T product = a * b;
  return product + c;
}
template <class T>
T without_subnormals(T a, T b, T c) {
  const T sum = std::fma(a, b, c);
  return std::fpclassify(sum) == FP_SUBNORMAL ? std::copysign(T{0}, sum) : sum;
}
template <class T>
T without_sign_of_zero(T a, T b, T c) {
  return std::fma(a, b, c) + T{0};
}
template <class T>
T rounded_up(T a, T b, T c) {
  const T sum = std::fma(a, b, c);
  return std::isfinite(sum) && a * b != sum - c ? std::nextafter(sum, std::numeric_limits<T>::infinity()) : sum;
}

template <class T>
void expect_replaced() {
  using Function = T (*)(T, T, T);
  const Function own = &exact_fma;
  EXPECT_EQ(choose_fma(static_cast<Function>(&twice_rounded)), own);
  EXPECT_EQ(choose_fma(static_cast<Function>(&not_fused<T>)), own);
  EXPECT_EQ(choose_fma(static_cast<Function>(&without_subnormals<T>)), own);
  EXPECT_EQ(choose_fma(static_cast<Function>(&without_sign_of_zero<T>)), own);
  EXPECT_EQ(choose_fma(static_cast<Function>(&rounded_up<T>)), own);
  const Function right = +[](T a, T b, T c) { return std::fma(a, b, c); };
  EXPECT_EQ(choose_fma(right), right);
}

TEST(ExactFma, ReplacesFunctionsThatAreNot) {
  expect_replaced<float>();
  expect_replaced<double>();
}

// What the scalar set calls: this fails if its choice was made of a wrong function, or never.
TEST(ExactFma, TheChosenOnesAreExact) {
  EXPECT_EQ(kFmaF32(1 + 0x1p-18f, (1 - 0x1p-18f) * 0x1p-24f, 1 + 0x1p-23f), 1 + 0x1p-23f);
  EXPECT_EQ(kFmaF64(1 + 0x1p-30, 1 - 0x1p-30, -1.0), -0x1p-60);
}

}  // namespace
}  // namespace dllm::cpu
