// Sums, products and quotients of float64, which routes of experts need: the device's own, or by integers where it has
// none. Included after exact.glsl. integers_test.cpp reads it as C++.

#ifndef kIntegers
#define Double double

double sum64(double a, double b) {
  precise double sum = a + b;
  return sum;
}
double product64(double a, double b) {
  precise double product = a * b;
  return product;
}
double quotient64(double a, double b) {
  precise double quotient = a / b;
  return quotient;
}
Double double_of(uint low, uint high) { return packDouble2x32(uvec2(low, high)); }
#else
#define Double uvec2

// Float64 as its bits. Only numbers that are not below zero are added, and no result is subnormal.
uvec2 infinite64(uint sign) { return uvec2(0u, sign | 0x7ff00000u); }
uvec2 none64() { return uvec2(0u, 0x7ff80000u); }
uint exponent64(uvec2 a) { return a.y >> 20 & 0x7ffu; }
bool none(uvec2 a) { return exponent64(a) == 0x7ffu && ((a.y & 0x000fffffu) | a.x) != 0u; }
bool infinite(uvec2 a) { return exponent64(a) == 0x7ffu && ((a.y & 0x000fffffu) | a.x) == 0u; }
bool nothing(uvec2 a) { return exponent64(a) == 0u; }
// 53 bits.
uvec2 significand64(uvec2 a) { return uvec2(a.x, (a.y & 0x000fffffu) | 0x00100000u); }

// significand * 2^(exponent - 62) with 63 bits, of which the last one says whether anything is below, to nearest even.
uvec2 rounded64(uint sign, uvec2 significand, int exponent) {
  const uint rest = significand.x & 0x3ffu;
  uvec2 kept = uvec2(significand.x >> 10 | significand.y << 22, significand.y >> 10);
  if (rest > 0x200u || (rest == 0x200u && (kept.x & 1u) != 0u)) kept = sum_of(kept, uvec2(1u, 0u));
  const int field = exponent + 1023;
  if (field >= 0x7ff) return infinite64(sign);
  // The first bit of the significand adds one to the exponent, and a carry another.
  return uvec2(kept.x, sign | (uint(field - 1) << 20) + kept.y);
}

// A float, and back to the nearest one.
uvec2 wide(float x) {
  const uint bits = floatBitsToUint(x), sign = bits & 0x80000000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return none64();
  if (size == 0x7f800000u) return infinite64(sign);
  if (size == 0u) return uvec2(0u, sign);
  const Parts parts = parts_of(x);
  return uvec2(parts.significand << 29,
               sign | uint(parts.exponent + 1023) << 20 | (parts.significand & 0x007fffffu) >> 3);
}

float narrow(uvec2 x) {
  const uint sign = x.y & 0x80000000u;
  if (none(x)) return uintBitsToFloat(0x7fc00000u);
  if (infinite(x)) return uintBitsToFloat(sign | 0x7f800000u);
  if (nothing(x)) return uintBitsToFloat(sign);
  const uvec2 bits = significand64(x);
  return uintBitsToFloat(sign | rounded(bits.y << 4 | bits.x >> 28, (bits.x & 0x0fffffffu) != 0u, int(exponent64(x)) - 1023));
}

uvec2 sum64(uvec2 a, uvec2 b) {
  if (none(a) || none(b)) return none64();
  if (infinite(a) || nothing(b)) return a;
  if (infinite(b) || nothing(a)) return b;
  if (below(a, b)) {
    const uvec2 other = a;
    a = b;
    b = other;
  }
  const uvec2 lesser = right_with_rest(left(significand64(b), 9u), exponent64(a) - exponent64(b));
  uvec2 sum = sum_of(left(significand64(a), 9u), lesser);  // its first bit is 61 or 62
  int exponent = int(exponent64(a)) - 1023;
  if (sum.y >> 30 != 0u)
    exponent += 1;
  else
    sum = left(sum, 1u);
  return rounded64(0u, sum, exponent);
}

uvec2 product64(uvec2 a, uvec2 b) {
  const uint sign = (a.y ^ b.y) & 0x80000000u;
  if (none(a) || none(b) || (infinite(a) && nothing(b)) || (nothing(a) && infinite(b))) return none64();
  if (infinite(a) || infinite(b)) return infinite64(sign);
  if (nothing(a) || nothing(b)) return uvec2(0u, sign);
  // Words of the product of two numbers of 64 bits, whose first bit is 126 or 127.
  const uvec2 x = left(significand64(a), 11u), y = left(significand64(b), 11u);
  uvec2 low, middle, other, high;
  umulExtended(x.x, y.x, low.y, low.x);
  umulExtended(x.x, y.y, middle.y, middle.x);
  umulExtended(x.y, y.x, other.y, other.x);
  umulExtended(x.y, y.y, high.y, high.x);
  const uvec2 second = sum_of(sum_of(uvec2(low.y, 0u), uvec2(middle.x, 0u)), uvec2(other.x, 0u));
  high = sum_of(high, sum_of(sum_of(uvec2(middle.y, 0u), uvec2(other.y, 0u)), uvec2(second.y, 0u)));
  if ((second.x | low.x) != 0u) high.x |= 1u;
  int exponent = int(exponent64(a)) + int(exponent64(b)) - 2046;
  if (high.y >> 31 != 0u) {
    high = right_with_rest(high, 1u);
    exponent += 1;
  }
  return rounded64(sign, high, exponent);
}

uvec2 quotient64(uvec2 a, uvec2 b) {
  const uint sign = (a.y ^ b.y) & 0x80000000u;
  if (none(a) || none(b) || (infinite(a) && infinite(b)) || (nothing(a) && nothing(b))) return none64();
  if (infinite(a) || nothing(b)) return infinite64(sign);
  if (nothing(a) || infinite(b)) return uvec2(0u, sign);
  uvec2 rest = significand64(a), digits = uvec2(0u);
  const uvec2 divisor = significand64(b);
  int exponent = int(exponent64(a)) - int(exponent64(b));
  if (below(rest, divisor)) {
    rest = left(rest, 1u);
    exponent -= 1;
  }
  for (int digit = 0; digit < 55; ++digit) {
    digits = left(digits, 1u);
    if (!below(rest, divisor)) {
      rest = difference_of(rest, divisor);
      digits.x |= 1u;
    }
    rest = left(rest, 1u);
  }
  digits = left(digits, 8u);
  if (!is_zero(rest)) digits.x |= 1u;
  return rounded64(sign, digits, exponent);
}
Double double_of(uint low, uint high) { return uvec2(low, high); }
#endif
