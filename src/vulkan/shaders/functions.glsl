// e^x and its like, as src/cpu/kernels/math-inl.h defines them: the same operations in the same order. Included after
// exact.glsl.

float bits_of(uint bits) { return uintBitsToFloat(bits); }

// e^x; the constants are the kernels', as bits where decimal digits would have to be counted.
float exponential(float x) {
  float clamped = -104.0 > x ? -104.0 : x;
  clamped = 89.0 < clamped ? 89.0 : clamped;
  const float shifted = fused(clamped, bits_of(0x3fb8aa3bu), kMagic);  // log2 e
  const float n = subtract(shifted, kMagic);
  const float r = fused(n, bits_of(0xb5bfbe8eu), fused(n, bits_of(0xbf317200u), clamped));  // -ln 2, in two parts
  const float r2 = multiply(r, r);
  const float c23 = fused(bits_of(0x3e2aaaabu), r, 0.5);                   // 1/6
  const float c45 = fused(bits_of(0x3c088889u), r, bits_of(0x3d2aaaabu));  // 1/120, 1/24
  const float c67 = fused(bits_of(0x39500d01u), r, bits_of(0x3ab60b61u));  // 1/5040, 1/720
  const float sum = add(1.0, fused(fused(fused(c67, r2, c45), r2, c23), r2, r));
  const int k = floatBitsToInt(shifted) - floatBitsToInt(kMagic), half_k = k >> 1;
  return multiply(multiply(sum, power_of_two(half_k)), power_of_two(k - half_k));
}

// 2^x for x <= 0, at least 2^-125: a weight of the softmax.
float weight_of(float x) {
  const float clamped = -125.0 > x ? -125.0 : x;
  const float shifted = add(clamped, kMagic);
  const float r = subtract(clamped, subtract(shifted, kMagic));
  const float r2 = multiply(r, r);
  const float c23 = fused(bits_of(0x3d635774u), r, bits_of(0x3e75fdeeu));
  const float c45 = fused(bits_of(0x3aaf9f2au), r, bits_of(0x3c1d96a6u));
  const float c456 = fused(bits_of(0x3920fdddu), r2, c45);
  const float sum = add(1.0, fused(fused(c456, r2, c23), r2, multiply(bits_of(0x3f317218u), r)));
  return intBitsToFloat(floatBitsToInt(sum) + (floatBitsToInt(shifted) << 23));
}
