// Fused multiply-adds of float64, rounded once. Included after the push constants. Sums and products of float64 round
// as IEEE 754 says on every device that passes the self-test, which also chooses the form of the fused ones.

layout(constant_id = 2) const bool kNativeFused64 = false;

struct Pair64 {
  double high, low;
};

// a + b = high + low (Knuth).
Pair64 exact_sum(double a, double b) {
  precise double sum = a + b;
  precise double part = sum - a;
  precise double error = (a - (sum - part)) + (b - part);
  return Pair64(sum, error);
}

// a * b = high + low: halves of 26 bits (Veltkamp, Dekker). Exact while neither overflows nor reaches subnormal numbers.
Pair64 exact_product(double a, double b) {
  precise double product = a * b;
  precise double spread_a = a * 134217729.0lf, spread_b = b * 134217729.0lf;
  precise double high_a = spread_a - (spread_a - a), high_b = spread_b - (spread_b - b);
  precise double low_a = a - high_a, low_b = b - high_b;
  precise double error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
  return Pair64(product, error);
}

// a * b + c (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums"): the small part is rounded to odd,
// so that the last sum is the only rounding.
double fused64(double a, double b, double c) {
  if (kNativeFused64) {
    precise double result = fma(a, b, c);
    return result;
  }
  const Pair64 product = exact_product(a, b), inner = exact_sum(c, product.low);
  const Pair64 outer = exact_sum(product.high, inner.high), rest = exact_sum(inner.low, outer.low);
  double odd = rest.high;
  if (abs(rest.low) > 0.0lf) {
    uvec2 bits = unpackDouble2x32(odd);
    if ((bits.x & 1u) == 0u) {
      if ((rest.low > 0.0lf) == (odd > 0.0lf)) {
        bits.x += 1u;
      } else {
        if (bits.x == 0u) bits.y -= 1u;
        bits.x -= 1u;
      }
      odd = packDouble2x32(bits);
    }
  }
  precise double result = outer.high + odd;
  return result;
}

// e^d as exp_normal() computes it.
double exponential64(double d) {
  const double magic = packDouble2x32(uvec2(0, 0x43380000u));  // 1.5 * 2^52
  const double shifted = fused64(d, packDouble2x32(uvec2(0x652b82feu, 0x3ff71547u)), magic);  // log2 e
  precise double n = shifted - magic;
  const double r = fused64(n, packDouble2x32(uvec2(0x6af278edu, 0xbdd473deu)),  // ln 2, in two parts
                           fused64(n, packDouble2x32(uvec2(0xfef00000u, 0xbfe62e42u)), d));
  precise double r2 = r * r;
  precise double r4 = r2 * r2;
  const double q01 = fused64(0.16666666666666669lf, r, 0.5lf);
  const double q23 = fused64(0.008333333333330063lf, r, 0.04166666666662416lf);
  const double q45 = fused64(0.00019841269863042963lf, r, 0.0013888888917199863lf);
  const double q67 = fused64(2.7557268476532695e-06lf, r, 2.4801521317484083e-05lf);
  const double q89 = fused64(2.5100377619606372e-08lf, r, 2.7620078203806394e-07lf);
  const double q = fused64(fused64(q89, r4, fused64(q67, r2, q45)), r4, fused64(q23, r2, q01));
  precise double sum = 1.0lf + fused64(q, r2, r);
  uvec2 bits = unpackDouble2x32(sum);
  bits.y += unpackDouble2x32(shifted).x << 20;
  return packDouble2x32(bits);
}
