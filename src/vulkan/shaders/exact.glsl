// The operators of IEEE 754 binary32, rounded to nearest even, on devices whose own may do something else. Every shader
// that computes uses these instead of +, *, / and sqrt(): docs/design/arithmetic.md defines results by them. Which ones
// are corrected is decided by the self-test at the start (self_test.h).
//
// Included after the push constants, of which `p.zero` is 0; no compiler knows that.

layout(constant_id = 0) const bool kCorrectDivision = false;
layout(constant_id = 1) const bool kCorrectRoots = false;

// 1.5 * 2^23: adding it rounds to an integer, ties to even, which the low bits of the sum hold.
const float kMagic = 12582912.0;

uint exponent_bits(float x) { return floatBitsToUint(x) >> 23 & 255u; }
bool subnormal(float x) { return (floatBitsToUint(x) & 0x7fffffffu) - 1u < 0x007fffffu; }

#ifdef kSubnormals
// The device takes subnormal float32 for zeros wherever it computes or converts. So these are made and read by their
// bits: float64 has them all as normal numbers.
double wide(float x) {
  if (!subnormal(x)) return double(x);
  const uint bits = floatBitsToUint(x);
  const double magnitude = double(bits & 0x007fffffu) * packDouble2x32(uvec2(0u, uint(1023 - 149) << 20));
  return (bits >> 31) != 0u ? -magnitude : magnitude;
}

// Rounded to nearest even; of sums rounded to odd, once.
float narrow(double x) {
  const double least = packDouble2x32(uvec2(0u, uint(1023 - 126) << 20));
  if (!(abs(x) < least)) return float(x);
  const uint sign = unpackDouble2x32(x).y & 0x80000000u;
  // 1.5 x 2^52: adding it rounds to an integer, which the low bits hold.
  precise double units = abs(x) * packDouble2x32(uvec2(0u, uint(1023 + 149) << 20));
  precise double magic = units + packDouble2x32(uvec2(0u, 0x43380000u));
  return uintBitsToFloat(sign | unpackDouble2x32(magic).x);
}

float exact_product(float a, float b) {
  precise double exact = wide(a) * wide(b);
  return narrow(exact);
}
// Exact where it is small; elsewhere a subnormal number is less than half of the last place.
float exact_sum(float a, float b) {
  precise double exact = wide(a) + wide(b);
  return narrow(exact);
}
#elif defined(kIntegers)
// The device has no float64, and may take subnormal float32 for zeros: integers have no such faults.
float fused_by_integers(float a, float b, float c);
float exact_product(float a, float b) {
  return fused_by_integers(a, b, uintBitsToFloat((floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u));
}
float exact_sum(float a, float b) { return fused_by_integers(a, 1.0, b); }
#else
#define wide(x) double(x)
#define narrow(x) float(x)
#endif

#if defined(kSubnormals) || defined(kIntegers)
#define kByBits
// Whether a result may be a flushed one.
bool suspicious(float a, float b, float result) {
  return subnormal(a) || subnormal(b) || exponent_bits(result) == 0u;
}
#endif

float multiply(float a, float b) {
  precise float product = a * b;
#ifdef kByBits
  if (suspicious(a, b, product)) return exact_product(a, b);
#endif
  return product;
}

float add(float a, float b) {
  precise float sum = a + b;
#ifdef kByBits
  if (suspicious(a, b, sum)) return exact_sum(a, b);
#endif
  return sum;
}

float subtract(float a, float b) {
#ifdef kByBits
  return add(a, uintBitsToFloat(floatBitsToUint(b) ^ 0x80000000u));
#else
  precise float difference = a - b;
  return difference;
#endif
}

#if !defined(kIntegers) && (!defined(kNative) || defined(kFlushes))
// a * b + c, rounded once, by float64. The product is exact there. The sum is rounded to odd (Boldo and Melquiond 2008,
// "Emulation of FMA and correctly rounded sums"): then the rounding to float32 is the only one. The exclusive or with an
// unknown zero keeps Mesa 25 from dropping the conversion to float and back between two of these; `precise` does not.
float fused_by_float64(float a, float b, float c) {
  precise double product = wide(a) * wide(b);
  precise double other = wide(c);
  precise double sum = product + other;
  precise double part = sum - product;
  precise double error = (product - (sum - part)) + (other - part);
  // False where a sum that is not finite makes the error NaN.
  if (abs(error) > 0.0) {
    uvec2 bits = unpackDouble2x32(sum);
    if ((bits.x & 1u) == 0u) {
      if ((error > 0.0) == (sum > 0.0)) {
        bits.x += 1u;
      } else {
        if (bits.x == 0u) bits.y -= 1u;
        bits.x -= 1u;
      }
      sum = packDouble2x32(bits);
    }
  }
  return uintBitsToFloat(floatBitsToUint(narrow(sum)) ^ p.zero);
}
#endif

// The device's own.
float device_fma(float a, float b, float c) {
#ifdef kFlushes
  // A device for tests: NVIDIA's driver 580 takes subnormal operands and results of fma() for zeros, not those of + and *.
  const uint sign = 0x80000000u;
  if (subnormal(a)) a = uintBitsToFloat(floatBitsToUint(a) & sign);
  if (subnormal(b)) b = uintBitsToFloat(floatBitsToUint(b) & sign);
  if (subnormal(c)) c = uintBitsToFloat(floatBitsToUint(c) & sign);
  const float result = fused_by_float64(a, b, c);
  return subnormal(result) ? uintBitsToFloat(floatBitsToUint(result) & sign) : result;
#else
  precise float result = fma(a, b, c);
  return result;
#endif
}

// a * b + c, rounded once.
float fused(float a, float b, float c) {
#if defined(kNative)
  return device_fma(a, b, c);
#elif defined(kGuarded) || defined(kFlushes)
  const float result = device_fma(a, b, c);
  if (exponent_bits(result) == 0u || subnormal(a) || subnormal(b) || subnormal(c)) return fused_by_float64(a, b, c);
  return result;
#elif defined(kIntegers)
  return fused_by_integers(a, b, c);
#else
  return fused_by_float64(a, b, c);
#endif
}

// The same where neither an operand nor the result can be a subnormal number.
float fused_normal(float a, float b, float c) {
#ifdef kFloat64
  return fused_by_float64(a, b, c);
#elif defined(kIntegers)
  return fused_by_integers(a, b, c);
#else
  return device_fma(a, b, c);
#endif
}

// The next float32 above (up) or below a finite number that is not zero.
float neighbour(float x, bool up) {
  const uint bits = floatBitsToUint(x);
  return uintBitsToFloat((x > 0.0) == up ? bits + 1u : bits - 1u);
}

// The bits of x as BF16 in the upper half, to nearest even; a NaN must not carry into the sign.
uint bf16_bits(float x) {
  const uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc00000u;
  return bits + 0x7fffu + (bits >> 16 & 1u) & 0xffff0000u;
}

float power_of_two(int exponent) { return intBitsToFloat((exponent + 127) << 23); }

#include "parts.glsl"
#ifdef kIntegers
#include "integers.glsl"
#endif

// a / b by long division, whatever the device does with floats.
float divide_digits(float a, float b) {
  const uint sign = (floatBitsToUint(a) ^ floatBitsToUint(b)) & 0x80000000u;
  const uint left = floatBitsToUint(a) & 0x7fffffffu, right = floatBitsToUint(b) & 0x7fffffffu;
  const uint infinite = 0x7f800000u;
  if (left > infinite || right > infinite || (left == infinite && right == infinite) || (left == 0u && right == 0u))
    return uintBitsToFloat(0x7fc00000u);
  if (left == infinite || right == 0u) return uintBitsToFloat(sign | infinite);
  if (left == 0u || right == infinite) return uintBitsToFloat(sign);
  const Parts dividend = parts_of(a), divisor = parts_of(b);
  uint rest = dividend.significand, quotient = 0u;
  int exponent = dividend.exponent - divisor.exponent;
  if (rest < divisor.significand) {
    rest <<= 1;
    exponent -= 1;
  }
  for (int digit = 0; digit < 25; ++digit) {
    quotient <<= 1;
    if (rest >= divisor.significand) {
      rest -= divisor.significand;
      quotient |= 1u;
    }
    rest <<= 1;
  }
  return uintBitsToFloat(sign | rounded(quotient, rest != 0u, exponent));
}

// The square root by digits: two more bits of the radicand for each.
float root_digits(float x) {
  const uint bits = floatBitsToUint(x);
  if (bits == 0u || bits == 0x80000000u || bits == 0x7f800000u) return x;
  if (bits > 0x7f800000u) return uintBitsToFloat(0x7fc00000u);  // below zero, or no number
  Parts parts = parts_of(x);
  if ((parts.exponent & 1) != 0) {
    parts.significand <<= 1;
    parts.exponent -= 1;
  }
  uint rest = 0u, digits = 0u;
  for (int digit = 0; digit < 25; ++digit) {
    const int low = 23 - 2 * digit;  // of the next two bits; the lowest one of the first 25 digits is bit 0
    uint pair = 0u;
    if (low >= 0)
      pair = parts.significand >> low & 3u;
    else if (low == -1)
      pair = (parts.significand & 1u) << 1;
    rest = rest << 2 | pair;
    const uint trial = digits << 2 | 1u;
    digits <<= 1;
    if (rest >= trial) {
      rest -= trial;
      digits |= 1u;
    }
  }
  return uintBitsToFloat(rounded(digits, rest != 0u, parts.exponent / 2));
}

// Vulkan permits a quotient 2.5 units from the exact one. Of two neighbours that one is nearer whose remainder is smaller.
// A remainder is exact for a quotient that is off by less than a unit (Markstein), and has the right order for others.
// Small dividends are scaled up, so that it is no subnormal number. Digits give quotients outside [2^-62, 2^62], and those
// of operands for which devices may flush something to zero: NVIDIA's do for divisors above 2^126.
float divide(float a, float b) {
  precise float quotient = a / b;
  if (!kCorrectDivision) return quotient;
  const uint dividend = exponent_bits(a), divisor = exponent_bits(b), field = exponent_bits(quotient);
  if (field < 65u || field > 188u || dividend == 0u || dividend > 252u || divisor == 0u || divisor > 252u)
    return divide_digits(a, b);
  const int shift = dividend < 127u ? 60 : 0;
  a = multiply(a, power_of_two(shift));
  float best = multiply(quotient, power_of_two(shift));
  for (int i = 0; i < 3; ++i) {
    const float rest = fused(-best, b, a);
    if (rest == 0.0) break;
    const float next = neighbour(best, (rest > 0.0) == (b > 0.0));
    if (!(abs(fused(-next, b, a)) < abs(rest))) break;
    best = next;
  }
  return multiply(best, power_of_two(-shift));
}

// Likewise. With units of the root's last place u and the exact rest x - r^2, a multiple of u^2: the next root above is
// nearer if x > (r + u/2)^2, which is rest > r u; the one below if rest <= -r u.
float root(float x) {
  precise float best = sqrt(x);
  if (!kCorrectRoots) return best;
  const uint field = exponent_bits(x);
  if (field < 37u || field > 216u || x < 0.0) return root_digits(x);
  for (int i = 0; i < 3; ++i) {
    const float up = neighbour(best, true), unit = subtract(up, best);
    const float rest = fused(-best, best, x), step = multiply(best, unit);
    if (rest > step) {
      best = up;
    } else if (rest <= -step) {
      best = neighbour(best, false);
    } else {
      break;
    }
  }
  return best;
}
