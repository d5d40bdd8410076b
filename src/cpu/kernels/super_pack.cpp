#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels/super.h"
#include "numerics/half.h"

namespace dllm::cpu {
namespace {

constexpr std::int8_t table_entry(int level, int code) {
  const int product = level * (code - 8), magnitude = product < 0 ? -product : product;
  constexpr int kMost = kSuperLevels * 8;
  const int rounded = (2 * 127 * magnitude + kMost) / (2 * kMost);
  return static_cast<std::int8_t>(product < 0 ? -rounded : rounded);
}

constexpr SuperTables make_tables() {
  SuperTables tables{};
  for (int level = -kSuperLevels; level <= kSuperLevels; ++level)
    for (int code = 0; code < 16; ++code) tables.bytes[(level + kSuperLevels) * 16 + code] = table_entry(level, code);
  return tables;
}

constexpr std::int64_t kGroup = 32;
constexpr std::uint16_t kLevelZero = kSuperLevels * 16;

float half_at(const std::uint8_t* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f16_to_f32(bits);
}

/// The largest magnitude; whether all are finite.
struct Largest {
  float value = 0;
  bool finite = true;
  void see(float x) {
    finite = finite && std::isfinite(x);
    value = std::fmax(value, std::fabs(x));
  }
  bool zero() const { return !finite || value == 0.f; }
  float scaled(float w) const { return finite ? w : std::numeric_limits<float>::quiet_NaN(); }
};

/// One output of one super-block of `kc` weights, `at` its first block of the file.
float pack_nibbles(const std::uint8_t* at, std::int64_t kc, int lane, std::uint8_t* codes, std::uint8_t* levels) {
  constexpr std::int64_t kBytes = 18;
  Largest largest;
  for (std::int64_t g = 0; g < kc / kGroup; ++g) largest.see(half_at(at + g * kBytes));
  const float inverse = largest.zero() ? 0.f : static_cast<float>(kSuperLevels) / largest.value;
  for (std::int64_t k0 = 0; k0 < kc; k0 += kSuperStep) {
    std::uint8_t u[kSuperStep] = {};
    std::uint16_t offsets[4] = {kLevelZero, kLevelZero, kLevelZero, kLevelZero};
    for (std::int64_t g = 0; g < 4 && k0 + g * kGroup < kc; ++g) {
      const std::uint8_t* block = at + (k0 / kGroup + g) * kBytes;
      const float level = largest.zero() ? 0.f : std::nearbyint(half_at(block) * inverse);
      offsets[g] = static_cast<std::uint16_t>((static_cast<int>(level) + kSuperLevels) * 16);
      for (int i = 0; i < 16; ++i) {
        u[g * kGroup + i] = block[2 + i] & 15;
        u[g * kGroup + 16 + i] = static_cast<std::uint8_t>(block[2 + i] >> 4);
      }
    }
    std::uint8_t* to = codes + (k0 / kSuperStep * kPanel + lane) * 64;
    for (int i = 0; i < 64; ++i) to[i] = static_cast<std::uint8_t>(u[i] | u[64 + i] << 4);
    std::memcpy(levels + (k0 / kSuperStep * kPanel + lane) * 8, offsets, 8);
  }
  return largest.scaled(largest.value * (8.f / 127.f));
}

float pack_bytes(const std::uint8_t* at, std::int64_t kc, int lane, std::uint8_t* codes) {
  constexpr std::int64_t kBytes = 34;
  float w[kSuperK] = {};
  Largest largest;
  for (std::int64_t g = 0; g < kc / kGroup; ++g)
    for (std::int64_t i = 0; i < kGroup; ++i) {
      // Exact: 11 bits times 8. An infinite or NaN scale shows even if codes are zero.
      w[g * kGroup + i] =
          half_at(at + g * kBytes) * static_cast<float>(static_cast<std::int8_t>(at[g * kBytes + 2 + i]));
      largest.see(w[g * kGroup + i]);
    }
  const float inverse = largest.zero() ? 0.f : 127.f / largest.value;
  for (std::int64_t k0 = 0; k0 < super_padded(kc); k0 += 64)
    for (std::int64_t i = 0; i < 64; ++i) {
      const float code = largest.zero() ? 0.f : std::nearbyint(w[k0 + i] * inverse);
      codes[(k0 / 64 * kPanel + lane) * 64 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    }
  return largest.scaled(largest.value / 127.f);
}

}  // namespace

constinit const SuperTables kSuperTables = make_tables();

bool runs_super(TensorType type) { return type == TensorType::kQ4_0 || type == TensorType::kQ8_0; }

SuperLayout super_layout(TensorType type, std::int64_t k) {
  SuperLayout layout;
  layout.nibbles = type == TensorType::kQ4_0;
  layout.k = k;
  for (std::int64_t s = 0; s < super_blocks(k); ++s) layout.bytes += layout.block_bytes(super_block_k(k, s));
  return layout;
}

void pack_super_panel(TensorType type, const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k,
                      std::uint8_t* panel) {
  const SuperLayout layout = super_layout(type, k);
  // Codes and a scale of zero bits give a finite product, which is not read.
  if (count < kPanel) std::memset(panel, 0, static_cast<std::size_t>(layout.bytes));
  const std::int64_t block_row = layout.nibbles ? 18 : 34;
  for (std::int64_t s = 0; s < super_blocks(k); ++s) {
    const std::int64_t k0 = s * kSuperK, kc = k - k0 < kSuperK ? k - k0 : kSuperK, padded = super_block_k(k, s);
    std::uint8_t* levels = panel + layout.code_bytes(padded);
    for (int lane = 0; lane < count; ++lane) {
      const std::uint8_t* at = rows + lane * row_bytes + k0 / kGroup * block_row;
      const float scale = layout.nibbles ? pack_nibbles(at, kc, lane, panel, levels) : pack_bytes(at, kc, lane, panel);
      std::memcpy(levels + layout.level_bytes(padded) + lane * 4, &scale, 4);
    }
    panel += layout.block_bytes(padded);
  }
}

}  // namespace dllm::cpu
