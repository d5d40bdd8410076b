// Compares the emulated TDPBF16PS with what Intel's processors compute: with recorded results everywhere, and with the
// processor's own where it has the instruction.
#define DLLM_ISA tile_check

#include "cpu/kernels/tile_emulation.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>

#include "cpu/kernels/test_data.h"

namespace dllm::cpu {

/// `on_processor`: it has the instruction, and tiles may be used. Returns the number of tiles that differ, and prints
/// it.
int check_bf16_tiles(bool on_processor);

namespace {

struct alignas(64) CheckConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16};
};

struct alignas(64) CheckTiles {
  std::uint16_t a[16][32] = {};
  std::uint16_t b[16][16][2] = {};
  float sums[16][16] = {};

  void set(int k, float x, float w) {
    for (auto& row : a) row[k] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    for (auto& column : b[k / 2]) column[k % 2] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(w) >> 16);
  }
};

void multiply_emulated(CheckTiles& tiles) {
  using namespace tile_check;
  const CheckConfig config;
  _tile_loadconfig(&config);
  _tile_loadd(0, tiles.sums, 64);
  _tile_loadd(1, tiles.a, 64);
  _tile_loadd(2, tiles.b, 64);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, tiles.sums, 64);
  _tile_release();
}

#if defined(__x86_64__)
// In assembly, so that the file needs no flags of an instruction set, which the emulated functions would share.
void multiply_on_processor(CheckTiles& tiles) {
  const CheckConfig config;
  asm volatile(
      "ldtilecfg (%0)\n\ttileloadd (%1,%4,1), %%tmm0\n\ttileloadd (%2,%4,1), %%tmm1\n\t"
      "tileloadd (%3,%4,1), %%tmm2\n\ttdpbf16ps %%tmm2, %%tmm1, %%tmm0\n\ttilestored %%tmm0, (%1,%4,1)\n\ttilerelease"
      :
      : "r"(&config), "r"(tiles.sums), "r"(tiles.a), "r"(tiles.b), "r"(std::int64_t{64})
      : "memory");
}
#else
void multiply_on_processor(CheckTiles&) {}
#endif

/// Equal bits, or both NaN, whose payloads depend on which operand came first.
bool same_number(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

/// Two products at k and another k, and a start; the sum that a Xeon with AMX-BF16 gave.
struct Recorded {
  float x0, w0;
  int k1;
  float x1, w1, start, sum;
};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Recorded kRecorded[] = {
    {0.f, -1.f, 1, 0.f, -1.f, -0.f, 0.f},                          // chains begin with +0
    {0x1p-63f, 0x1p-63f, 2, -0x1p-76f, 0x1p-76f, 0.f, 0x1p-126f},  // rounds to a normal number
    {0x1p-63f, 0x1p-63f, 2, -0x1p-76f, 0x1p-75f, 0.f, 0x1p-126f},  // a tie, to even
    {0x1p-63f, 0x1p-63f, 2, -0x1p-75f, 0x1p-75f, 0.f, 0.f},        // flushed, though fmaf() gives 2^-126
    {0x1p-63f, 0x1.8p-63f, 1, -0x1p-63f, 0x1p-63f, 0.f, 0.f},      // the sum of the chains is subnormal
    {0x1p-63f, 0x1.8p-63f, 1, 0.f, 1.f, -0x1.cp-126f, -0.f},       // the last sum is, and keeps its sign
    {kInf, 1.f, 1, -kInf, 1.f, 0.f, std::numeric_limits<float>::quiet_NaN()},
};

int check_recorded(void (*multiply)(CheckTiles&)) {
  int failures = 0;
  for (const Recorded& r : kRecorded) {
    CheckTiles tiles;
    tiles.set(0, r.x0, r.w0);
    tiles.set(r.k1, r.x1, r.w1);
    for (auto& row : tiles.sums)
      for (float& sum : row) sum = r.start;
    multiply(tiles);
    failures += same_number(tiles.sums[15][15], r.sum) ? 0 : 1;
  }
  return failures;
}

/// A number of about 2^exponent, at times one of another kind.
float check_value(test::Random& random, int exponent, bool special) {
  if (special && random.below(600) == 0) {
    constexpr float kSpecial[] = {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), -0.f, 3e38f, 1e-40f};
    return kSpecial[random.below(6)];
  }
  return std::ldexp(random.unit(), exponent);
}

}  // namespace

int check_bf16_tiles(bool on_processor) {
  int failures = check_recorded(multiply_emulated), cases = 0;
  if (on_processor) failures += check_recorded(multiply_on_processor);
  test::Random random{31};
  for (int exponent : {0, 30, -40, -63, -70})
    for (int i = 0; on_processor && i < 60; ++i, ++cases) {
      CheckTiles tiles;
      for (auto& row : tiles.a)
        for (auto& x : row)
          x = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(check_value(random, exponent, i % 4 == 0)) >> 16);
      for (auto& pair : tiles.b)
        for (auto& column : pair)
          for (auto& w : column)
            w = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(check_value(random, exponent, i % 4 == 0)) >>
                                           16);
      for (auto& row : tiles.sums)
        for (float& sum : row) sum = check_value(random, 2 * exponent, i % 4 == 0);
      CheckTiles own = tiles;
      multiply_emulated(tiles);
      multiply_on_processor(own);
      bool same = true;
      for (int n = 0; n < 256; ++n) same = same && same_number(tiles.sums[n / 16][n % 16], own.sums[n / 16][n % 16]);
      failures += same ? 0 : 1;
    }
  std::printf("%-12s %d recorded and %d random tiles, %d differ%s\n", "TDPBF16PS",
              static_cast<int>(std::size(kRecorded)), cases, failures,
              on_processor ? "" : " (the processor's are not available here)");
  return failures;
}

}  // namespace dllm::cpu
