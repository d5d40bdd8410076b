#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

// Matrix tiles in plain C++, under the names of the intrinsics, for one thread, so that super-tiles-inl.h can be tested
// bit for bit where no processor has them. As in Intel's manual (palette 1): eight tiles of at most 16 rows of 64
// bytes; rows and bytes beyond the configured ones are zero; using a tile before its configuration is a fault.

namespace dllm::cpu::DLLM_ISA {
namespace {

struct EmulatedTiles {
  std::uint8_t bytes[8][16][64];
  int rows[8];
  int row_bytes[8];
  bool configured;
};
EmulatedTiles emulated_tiles = {};

inline void tile_fault(const char* what) {
  std::fprintf(stderr, "tile emulation: %s\n", what);
  std::abort();
}
inline void tile_check(int tile) {
  if (!emulated_tiles.configured || emulated_tiles.rows[tile] == 0) tile_fault("a tile is not configured");
}

inline void _tile_loadconfig(const void* config) {
  const auto* bytes = static_cast<const std::uint8_t*>(config);
  if (bytes[0] != 1 || bytes[1] != 0) tile_fault("the configuration is not of palette 1");
  for (int i = 2; i < 16; ++i)
    if (bytes[i] != 0) tile_fault("a reserved byte of the configuration is set");
  emulated_tiles = {};
  for (int t = 0; t < 8; ++t) {
    std::uint16_t row_bytes;
    std::memcpy(&row_bytes, bytes + 16 + 2 * t, 2);
    emulated_tiles.row_bytes[t] = row_bytes;
    emulated_tiles.rows[t] = bytes[48 + t];
    if (row_bytes > 64 || bytes[48 + t] > 16) tile_fault("a configured tile is too large");
  }
  emulated_tiles.configured = true;
}
inline void _tile_release() { emulated_tiles = {}; }
inline void _tile_zero(int tile) {
  tile_check(tile);
  std::memset(emulated_tiles.bytes[tile], 0, sizeof emulated_tiles.bytes[tile]);
}
inline void _tile_loadd(int tile, const void* base, std::int64_t stride) {
  _tile_zero(tile);
  for (int r = 0; r < emulated_tiles.rows[tile]; ++r)
    std::memcpy(emulated_tiles.bytes[tile][r], static_cast<const std::uint8_t*>(base) + r * stride,
                static_cast<std::size_t>(emulated_tiles.row_bytes[tile]));
}
inline void _tile_stored(int tile, void* base, std::int64_t stride) {
  tile_check(tile);
  for (int r = 0; r < emulated_tiles.rows[tile]; ++r)
    std::memcpy(static_cast<std::uint8_t*>(base) + r * stride, emulated_tiles.bytes[tile][r],
                static_cast<std::size_t>(emulated_tiles.row_bytes[tile]));
}
/// to[m][n] += sum over k and i < 4 of a[m][4 k + i] b[k][4 n + i], all signed bytes.
inline void _tile_dpbssd(int to, int a, int b) {
  for (int tile : {to, a, b}) tile_check(tile);
  EmulatedTiles& t = emulated_tiles;
  if (t.rows[to] != t.rows[a] || t.row_bytes[to] != t.row_bytes[b] || t.row_bytes[a] != 4 * t.rows[b])
    tile_fault("the shapes of a product do not match");
  for (int m = 0; m < t.rows[to]; ++m)
    for (int n = 0; n < t.row_bytes[to] / 4; ++n) {
      std::int32_t sum;
      std::memcpy(&sum, t.bytes[to][m] + 4 * n, 4);
      for (int k = 0; k < t.row_bytes[a]; ++k)
        sum += std::int32_t{static_cast<std::int8_t>(t.bytes[a][m][k])} *
               static_cast<std::int8_t>(t.bytes[b][k / 4][4 * n + k % 4]);
      std::memcpy(t.bytes[to][m] + 4 * n, &sum, 4);
    }
}

/// Subnormal numbers count as zero, with their sign.
inline float tile_flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }
inline float tile_bf16(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, 2);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return tile_flush(value);
}
/// a b + c, for flushed operands. The instruction rounds as if exponents had no lower bound and flushes then, which
/// differs from fmaf() just below 2^-126, where that has a bit less: there it is computed 2^64 times as large.
inline float tile_fma(float a, float b, float c) {
  const float sum = std::fmaf(a, b, c);
  if (!(std::fabs(sum) <= 0x1p-126f)) return sum;
  const float scaled =
      std::fabs(a) < std::fabs(b) ? std::fmaf(a * 0x1p64f, b, c * 0x1p64f) : std::fmaf(a, b * 0x1p64f, c * 0x1p64f);
  return std::fabs(scaled) < 0x1p-62f ? std::copysign(0.f, scaled) : sum;
}
/// to[m][n] += sum over k < 16 of a[m][2 k] b[k][2 n] + sum over k of a[m][2 k + 1] b[k][2 n + 1], all BF16: two chains
/// of fused multiply-adds from +0, k ascending, whose sum is then added to the float.
inline void _tile_dpbf16ps(int to, int a, int b) {
  for (int tile : {to, a, b}) tile_check(tile);
  EmulatedTiles& t = emulated_tiles;
  if (t.rows[to] != t.rows[a] || t.row_bytes[to] != t.row_bytes[b] || t.row_bytes[a] != 4 * t.rows[b])
    tile_fault("the shapes of a product do not match");
  for (int m = 0; m < t.rows[to]; ++m)
    for (int n = 0; n < t.row_bytes[to] / 4; ++n) {
      float sum, chains[2] = {0.f, 0.f};
      std::memcpy(&sum, t.bytes[to][m] + 4 * n, 4);
      for (int k = 0; k < t.row_bytes[a] / 4; ++k)
        for (int i = 0; i < 2; ++i)
          chains[i] =
              tile_fma(tile_bf16(t.bytes[a][m] + 4 * k + 2 * i), tile_bf16(t.bytes[b][k] + 4 * n + 2 * i), chains[i]);
      sum = tile_flush(tile_flush(sum) + tile_flush(chains[0] + chains[1]));
      std::memcpy(t.bytes[to][m] + 4 * n, &sum, 4);
    }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
