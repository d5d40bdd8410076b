#include "cpu/kernels/exact_fma.h"

#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/hash.h"

namespace dllm::cpu {
namespace {

__extension__ using Wide = unsigned __int128;

int bits_of(Wide x) {
  const auto high = static_cast<std::uint64_t>(x >> 64);
  return high != 0 ? 128 - std::countl_zero(high) : 64 - std::countl_zero(static_cast<std::uint64_t>(x));
}

/// x / 2^shift; the last bit is also set if any lost bit was: where no more than that is needed to round.
Wide shifted_right(Wide x, int shift) {
  if (shift == 0) return x;
  if (shift > 127) return x != 0 ? 1 : 0;
  const Wide lost = x & ((Wide{1} << shift) - 1);
  return (x >> shift) | (lost != 0 ? 1 : 0);
}

/// Magnitude of a finite number other than 0: mantissa * 2^exponent, with the mantissa in [2^52, 2^53).
struct Scaled {
  std::uint64_t mantissa;
  int exponent;

  explicit Scaled(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    mantissa = bits & ((std::uint64_t{1} << 52) - 1);
    exponent = static_cast<int>(bits >> 52 & 0x7ff);
    if (exponent == 0) {
      const int shift = std::countl_zero(mantissa) - 11;
      mantissa <<= shift;
      exponent = 1 - shift;
    } else {
      mantissa |= std::uint64_t{1} << 52;
    }
    exponent -= 1075;
  }
};

/// value * 2^exponent, rounded to nearest; subnormal results have fewer bits.
double round_scaled(Wide value, int exponent) {
  constexpr int kLeast = -1074;  // of the last bit of subnormal numbers
  const int shift = std::max(bits_of(value) - 53, kLeast - exponent);
  if (shift <= 0) return std::ldexp(static_cast<double>(static_cast<std::uint64_t>(value)), exponent);
  if (shift > 127) return 0;  // less than half of the smallest number
  auto mantissa = static_cast<std::uint64_t>(value >> shift);
  const Wide rest = value & ((Wide{1} << shift) - 1), half = Wide{1} << (shift - 1);
  if (rest > half || (rest == half && (mantissa & 1) != 0)) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), exponent + shift);
}

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <class T>
class Probes {
 public:
  explicit Probes(T (*tested)(T, T, T)) : tested_(tested) {}

  bool all() const {
    using Limits = std::numeric_limits<T>;
    constexpr T kLast = Limits::epsilon(), kMost = Limits::max(), kLeast = Limits::denorm_min(),
                kInf = Limits::infinity();
    // (1 + d) (1 - d) = 1 - d^2: the product lies just below a tie of the sum, which a wider type rounds to the tie.
    const T d = std::ldexp(T{1}, -(Limits::digits * 3 / 4)), tie = kLast / 2;
    for (const T scale : {T{1}, T{-1}, std::ldexp(T{1}, 40), std::ldexp(T{1}, -40), std::ldexp(Limits::min(), 2)})
      for (const T odd : {T{1} + kLast, T{1} - kLast / 2, T{1} + 3 * kLast})
        if (!same((1 + d) * scale, (1 - d) * tie, odd * scale) || !same((1 + d) * scale, (d - 1) * tie, odd * scale) ||
            !same((1 + d) * scale, (1 + d) * tie, odd * scale))
          return false;
    // Products and sums beyond the range whose result is not; subnormal results; the sign of zero; no numbers.
    for (const T x :
         {kMost, -kMost, T{1} + kLast, kLeast, -kLeast, Limits::min(), T{0}, -T{0}, kInf, -kInf, Limits::quiet_NaN()})
      for (const T y : {T{2}, T{-0.5}, T{1} - kLast, T{0}, -T{0}, kLeast, kInf})
        for (const T z : {-kMost, kMost, T{1}, kLeast, -3 * kLeast, Limits::min(), T{0}, -T{0}, -kInf})
          if (!same(x, y, z)) return false;
    std::uint64_t state = 1;
    for (int i = 0; i < 100; ++i) {
      const T a = number(state), b = number(state), c = number(state);
      if (!same(a, b, c) || !same(a, b, -(a * b))) return false;  // the second is the rounding error of the product
    }
    return true;
  }

 private:
  bool same(T a, T b, T c) const {
    const T one = tested_(a, b, c), other = exact_fma(a, b, c);
    if (std::isnan(other)) return std::isnan(one);
    return std::bit_cast<BitsOf<T>>(one) == std::bit_cast<BitsOf<T>>(other);
  }
  /// With the exponents of numbers in 1/16 to 16.
  static T number(std::uint64_t& state) {
    const std::uint64_t bits = splitmix64(state);
    const T fraction =
        1 + std::ldexp(static_cast<T>(bits >> 8 & ((std::uint64_t{1} << (std::numeric_limits<T>::digits - 1)) - 1)),
                       1 - std::numeric_limits<T>::digits);
    return std::ldexp((bits & 1) != 0 ? -fraction : fraction, static_cast<int>(bits >> 1 & 7) - 4);
  }

  T (*tested_)(T, T, T);
};

}  // namespace

// In double, the product of two floats is exact and the sum is rounded. Rounded to odd instead, it keeps all that the
// second rounding must know: 53 >= 24 + 2 bits (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
// proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008).
float exact_fma(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
  double sum = product + addend;
  const double virtual_addend = sum - product;
  const double error = (product - (sum - virtual_addend)) + (addend - virtual_addend);
  auto bits = std::bit_cast<std::uint64_t>(sum);
  // Comparisons with the error of infinite sums, which is not a number, are false.
  if ((error < 0 || error > 0) && (bits & 1) == 0) {
    bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
    sum = std::bit_cast<double>(bits);
  }
  return static_cast<float>(sum);
}

// In integers of 128 bits. The product has 106 bits at most and is shifted to 126, or the addend is: what lies below
// bit 0 of that is at least 69 bits under the last bit of the result, and only whether it is 0 matters.
double exact_fma(double a, double b, double c) {
  if (!std::isfinite(a) || !std::isfinite(b) || a == 0 || b == 0) return a * b + c;
  if (!std::isfinite(c)) return c;
  if (c == 0) return a * b;  // also the sign of a product that is rounded to zero
  const Scaled x(a), y(b), z(c);
  Wide product = Wide{x.mantissa} * y.mantissa, addend = z.mantissa;
  int exponent = x.exponent + y.exponent;
  if (const int distance = z.exponent - exponent; distance >= 0) {
    const int shift = std::min(distance, 73);
    addend <<= shift;
    product = shifted_right(product, distance - shift);
    exponent = z.exponent - shift;
  } else {
    const int shift = std::min(-distance, 20);
    product <<= shift;
    exponent -= shift;
    addend = shifted_right(addend, -distance - shift);
  }
  const bool negative = std::signbit(a) != std::signbit(b);
  if (negative == std::signbit(c)) {
    const double sum = round_scaled(product + addend, exponent);
    return negative ? -sum : sum;
  }
  if (product == addend) return 0;
  const bool from_product = product > addend;
  const double difference = round_scaled(from_product ? product - addend : addend - product, exponent);
  return from_product == negative ? -difference : difference;
}

FmaF32 choose_fma(FmaF32 platform) { return Probes<float>(platform).all() ? platform : FmaF32{exact_fma}; }
FmaF64 choose_fma(FmaF64 platform) { return Probes<double>(platform).all() ? platform : FmaF64{exact_fma}; }

// C's functions themselves: a call through a function of ours made the scalar set a tenth slower.
const FmaF32 kFmaF32 = choose_fma(FmaF32{&::fmaf});
const FmaF64 kFmaF64 = choose_fma(FmaF64{&::fma});

}  // namespace dllm::cpu
