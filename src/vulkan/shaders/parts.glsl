// Numbers of float32 taken apart, and put together again. Included by exact.glsl.

// A finite number that is not zero as significand * 2^(exponent - 23), with 24 bits of significand: also subnormal ones.
struct Parts {
  uint significand;
  int exponent;
};
Parts parts_of(float x) {
  const uint low = floatBitsToUint(x) & 0x007fffffu, field = exponent_bits(x);
  if (field != 0u) return Parts(low | 0x00800000u, int(field) - 127);
  const int shift = 23 - findMSB(low);
  return Parts(low << shift, -126 - shift);
}

// The bits of significand * 2^(exponent - 24), rounded to nearest even: 25 bits of significand, whose last one is below
// float32's, and whether anything is below that.
uint rounded(uint significand, bool more, int exponent) {
  int field = exponent + 127;
  if (field > 254) return 0x7f800000u;
  if (field <= 0) {  // a subnormal number has fewer bits
    const int shift = min(1 - field, 26);
    more = more || (significand & (1u << shift) - 1u) != 0u;
    significand >>= shift;
    field = 1;
  }
  uint kept = significand >> 1;
  if ((significand & 1u) != 0u && (more || (kept & 1u) != 0u)) kept += 1u;
  return (uint(field - 1) << 23) + kept;
}
