// Fused multiply-adds of float32 by integers alone: those of the form kIntegers. 64 bits are two words: x has the low
// ones. Included by exact.glsl, after parts.glsl. integers_test.cpp reads it as C++.

bool below(uvec2 a, uvec2 b) { return a.y < b.y || (a.y == b.y && a.x < b.x); }
bool is_zero(uvec2 a) { return (a.x | a.y) == 0u; }

uvec2 sum_of(uvec2 a, uvec2 b) {
  uint carry;
  const uint low = uaddCarry(a.x, b.x, carry);
  return uvec2(low, a.y + b.y + carry);
}

uvec2 difference_of(uvec2 a, uvec2 b) {
  uint borrow;
  const uint low = usubBorrow(a.x, b.x, borrow);
  return uvec2(low, a.y - b.y - borrow);
}

// By at most 63 places.
uvec2 left(uvec2 a, uint places) {
  if (places == 0u) return a;
  if (places >= 32u) return uvec2(0u, a.x << (places - 32u));
  return uvec2(a.x << places, a.y << places | a.x >> (32u - places));
}

// By any number of places. The last bit is set if anything is lost: no later rounding takes the rest for a tie.
uvec2 right_with_rest(uvec2 a, uint places) {
  if (places == 0u) return a;
  if (places >= 64u) return uvec2(is_zero(a) ? 0u : 1u, 0u);
  uvec2 kept = uvec2(a.y >> (places - 32u), 0u);
  if (places < 32u) kept = uvec2(a.x >> places | a.y << (32u - places), a.y >> places);
  const uvec2 back = left(kept, places);
  if (back != a) kept.x |= 1u;
  return kept;
}

int highest_bit(uvec2 a) { return a.y != 0u ? 32 + findMSB(a.y) : findMSB(a.x); }

// a * b + c, rounded once.
float fused_by_integers(float a, float b, float c) {
  const uint sign = 0x80000000u, infinite = 0x7f800000u, magnitude = 0x7fffffffu;
  const uint bits_a = floatBitsToUint(a), bits_b = floatBitsToUint(b), bits_c = floatBitsToUint(c);
  const uint size_a = bits_a & magnitude, size_b = bits_b & magnitude, size_c = bits_c & magnitude;
  const uint sign_p = (bits_a ^ bits_b) & sign, sign_c = bits_c & sign;
  if (size_a > infinite || size_b > infinite || size_c > infinite) return uintBitsToFloat(0x7fc00000u);
  if (size_a == infinite || size_b == infinite) {
    const bool none = size_a == 0u || size_b == 0u || (size_c == infinite && sign_c != sign_p);
    return uintBitsToFloat(none ? 0x7fc00000u : sign_p | infinite);
  }
  if (size_c == infinite) return c;
  if (size_a == 0u || size_b == 0u) {
    if (size_c != 0u) return c;
    return uintBitsToFloat(sign_p == sign_c ? sign_p : 0u);
  }
  const Parts x = parts_of(a), y = parts_of(b);
  uvec2 product;
  umulExtended(x.significand, y.significand, product.y, product.x);
  // Both have their first bits at 60 or 61, and zeros below, so that what is lost below the last bit of a shifted one
  // can only matter where less than two bits cancel.
  product = left(product, 14u);
  int last = x.exponent + y.exponent - 60;  // the exponent of the last bit
  uvec2 addend = uvec2(0u);
  if (size_c != 0u) {
    const Parts z = parts_of(c);
    addend = uvec2(0u, z.significand << 5);
    const int last_c = z.exponent - 60;
    if (last_c > last) {
      product = right_with_rest(product, uint(last_c - last));
      last = last_c;
    } else {
      addend = right_with_rest(addend, uint(last - last_c));
    }
  }
  uvec2 total;
  uint result_sign = sign_p;
  if (sign_p == sign_c || size_c == 0u) {
    total = sum_of(product, addend);
  } else if (below(product, addend)) {
    total = difference_of(addend, product);
    result_sign = sign_c;
  } else {
    total = difference_of(product, addend);
    if (is_zero(total)) return 0.0;
  }
  const int top = highest_bit(total);
  // 25 bits, and one that says whether anything is below.
  const uint kept = top < 25 ? left(total, uint(25 - top)).x : right_with_rest(total, uint(top - 25)).x;
  return uintBitsToFloat(result_sign | rounded(kept >> 1, (kept & 1u) != 0u, last + top));
}
