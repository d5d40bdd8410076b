#include "base/rng.h"

#include <cmath>

namespace dllm {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53u;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;  // golden ratio
constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;  // sqrt(3) - 1

}  // namespace

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * c[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

double uniform01(const RngKey& key, RngPurpose purpose, std::uint32_t step, std::uint32_t position,
                 std::uint32_t index) {
  const auto bits = philox4x32({index, position, step, rng_stream(key, purpose)},
                               {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
  const std::uint64_t mantissa = (std::uint64_t{bits[0]} << 20) | (bits[1] >> 12);
  // Half a unit excludes both ends: ln(0) and ln(1) would give infinite Gumbel draws. 52 bits, because with 53 the
  // largest mantissa plus a half would round up to 1.
  return (static_cast<double>(mantissa) + 0.5) * 0x1.0p-52;
}

double gumbel(const RngKey& key, RngPurpose purpose, std::uint32_t step, std::uint32_t position, std::uint32_t index) {
  return -std::log(-std::log(uniform01(key, purpose, step, position, index)));
}

}  // namespace dllm
