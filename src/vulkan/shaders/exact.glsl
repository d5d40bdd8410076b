// The operators of IEEE 754 binary32, rounded to nearest even, on devices whose own may do something else. Every shader
// that computes uses these instead of +, *, / and sqrt(): docs/design/arithmetic.md defines results by them. Which ones
// are corrected is decided by the self-test at the start (self_test.h).
//
// Included after the push constants, of which `p.zero` is 0; no compiler knows that.

layout(constant_id = 0) const bool kCorrectDivision = false;
layout(constant_id = 1) const bool kCorrectRoots = false;

// 1.5 * 2^23: adding it rounds to an integer, ties to even, which the low bits of the sum hold.
const float kMagic = 12582912.0;

float multiply(float a, float b) {
  precise float product = a * b;
  return product;
}

float add(float a, float b) {
  precise float sum = a + b;
  return sum;
}

float subtract(float a, float b) {
  precise float difference = a - b;
  return difference;
}

// a * b + c, rounded once.
#ifdef kNative
float fused(float a, float b, float c) {
  precise float result = fma(a, b, c);
  return result;
}
#else
// The product is exact in float64. The sum is rounded to odd there (Boldo and Melquiond 2008, "Emulation of FMA and
// correctly rounded sums"): then the rounding to float32 is the only one. The exclusive or with an unknown zero keeps
// Mesa 25 from dropping the conversion to float and back between two of these; `precise` does not.
float fused(float a, float b, float c) {
  precise double product = double(a) * double(b);
  precise double other = double(c);
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
  return uintBitsToFloat(floatBitsToUint(float(sum)) ^ p.zero);
}
#endif

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

// Vulkan permits a quotient 2.5 units from the exact one. Of two neighbours that one is nearer whose remainder is smaller.
// A remainder is exact for a quotient that is off by less than a unit (Markstein), and has the right order for others.
// Small dividends are scaled up, so that it is no subnormal number. A quotient outside [2^-62, 2^62] is the device's own.
float divide(float a, float b) {
  precise float quotient = a / b;
  if (!kCorrectDivision || !(abs(quotient) > power_of_two(-62)) || !(abs(quotient) < power_of_two(62))) return quotient;
  const int shift = abs(a) < 1.0 ? 60 : 0;
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
  if (!kCorrectRoots || !(x > power_of_two(-90)) || !(x < power_of_two(90))) return best;
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
