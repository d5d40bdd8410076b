#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels/file_block.h"
#include "cpu/kernels/super.h"
#include "numerics/half.h"
#include "numerics/iq4.h"

namespace dllm::cpu {
namespace {

/// How the weights of a type become bytes.
enum class Scheme {
  kLevels,     ///< s (u - 8): a table per level of |s|
  kAffine,     ///< s u - m: a table per level of |s|, minus a byte
  kFives,      ///< the same with 32 codes
  kValues,     ///< s v with sixteen values of a type: a table per level of |s|
  kExponents,  ///< 2^e times a value of E2M1: a table per exponent
  kBytes,      ///< rounded
  kNone,
};

constexpr Scheme scheme_of(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return Scheme::kLevels;
    case TensorType::kQ4_1:
    case TensorType::kQ4_K:
      return Scheme::kAffine;
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ5_K:
      return Scheme::kFives;
    case TensorType::kIQ4_NL:
    case TensorType::kIQ4_XS:
    case TensorType::kIQ3_XXS:
    case TensorType::kIQ3_S:
      return Scheme::kValues;
    case TensorType::kMXFP4:
      return Scheme::kExponents;
    case TensorType::kQ8_0:
    case TensorType::kQ6_K:
      return Scheme::kBytes;
    default:
      return Scheme::kNone;
  }
}

/// numerator / denominator, to nearest, ties away from zero.
constexpr int rounded_quotient(int numerator, int denominator) {
  const int magnitude = numerator < 0 ? -numerator : numerator;
  const int quotient = (2 * magnitude + denominator) / (2 * denominator);
  return numerator < 0 ? -quotient : quotient;
}

constexpr int kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The values of a type of sixteen (Scheme::kValues), where its tables begin, and the largest magnitude.
struct ListedValues {
  const std::int8_t* values;
  int divisor;  ///< of the values: those of IQ3_XXS are halved, as in packed.h
  int most;
  int table;
};
constexpr ListedValues listed_values(TensorType type) {
  constexpr int kTables = 2 * kSuperLevels + 1;
  if (type == TensorType::kIQ3_XXS) return {kIq3XxsValues, 2, 31, kSuperValueTables + kTables};
  if (type == TensorType::kIQ3_S) return {kIq3SValues, 1, 15, kSuperValueTables + 2 * kTables};
  return {kIq4Values, 1, 127, kSuperValueTables};
}

constexpr SuperTables make_tables() {
  SuperTables tables{};
  const auto fill = [&](int table, auto&& entry, int codes = 16) {
    for (int code = 0; code < codes; ++code)
      tables.bytes[table * 16 + code] = static_cast<std::int8_t>(static_cast<std::uint8_t>(entry(code) & 255));
  };
  for (int level = -kSuperLevels; level <= kSuperLevels; ++level)
    fill(kSuperLevels + level, [=](int code) { return rounded_quotient(level * (code - 8) * 127, kSuperLevels * 8); });
  for (int level = -kSuperAffine; level <= kSuperAffine; ++level)
    fill(kSuperAffineTables + kSuperAffine + level, [=](int code) { return rounded_quotient(level * code, 15); });
  for (int shift = 0; shift < kSuperShifts; ++shift)
    fill(kSuperShiftTables + shift, [=](int code) { return rounded_quotient(kDoubledE2M1[code] * 127, 12 << shift); });
  for (int level = -kSuperAffine; level <= kSuperAffine; ++level)
    fill(
        kSuperFiveTables + 2 * (kSuperAffine + level), [=](int code) { return rounded_quotient(level * code, 31); },
        32);
  for (const TensorType type : {TensorType::kIQ4_NL, TensorType::kIQ3_XXS, TensorType::kIQ3_S}) {
    const ListedValues of = listed_values(type);
    for (int level = -kSuperLevels; level <= kSuperLevels; ++level)
      fill(of.table + kSuperLevels + level, [=](int code) {
        return rounded_quotient(level * (of.values[code] / of.divisor) * 127, kSuperLevels * of.most);
      });
  }
  return tables;
}

constexpr std::int64_t kMostGroups = kSuperK / 16;

/// One output of a super-block as the file has it: w = s (u - zero) - m.
struct Weights {
  std::uint8_t u[kSuperK];
  float s[kMostGroups];
  float m[kMostGroups];
  std::uint8_t exponent[kMostGroups];
};

float half_at(const std::uint8_t* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f16_to_f32(bits);
}

/// 2^(e - 128), as GGML has it (numerics/mxfp4.cpp).
float half_scale(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (std::uint32_t{e} - 1u) << 23);
}

template <PackedFormat kFormat>
void read_group(const FileBlock& block, int g, std::int64_t at, Weights& w) {
  w.m[at] = 0;
  if constexpr (kFormat.scales == Scales::kHalf) {
    w.s[at] = half_at(block.scale + 2 * g);
    if (kFormat.has_min) w.m[at] = -half_at(block.min + 2 * g);
    if (kFormat.type == TensorType::kQ5_0) w.m[at] = w.s[at] * static_cast<float>(kFormat.zero);
  } else if constexpr (kFormat.scales == Scales::kSuper) {
    const int scale = kFormat.has_min ? block.scale[g] : static_cast<std::int8_t>(block.scale[g]);
    w.s[at] = half_at(block.super) * static_cast<float>(scale) / static_cast<float>(1 << kFormat.shift);
    if (kFormat.has_min) w.m[at] = half_at(block.super_min) * static_cast<float>(block.min[g]);
  } else {
    w.exponent[at] = block.scale[0];
    w.s[at] = half_scale(block.scale[0]);
  }
}

/// Weights [0, kc) at `at`, in the file.
template <PackedFormat kFormat>
void read_weights(const std::uint8_t* at, std::int64_t kc, Weights& w) {
  FileBlock block;
  constexpr int kGroups = kFormat.block_elems / kFormat.group;
  for (std::int64_t b = 0; b < kc / kFormat.block_elems; ++b) {
    read_file_block(kFormat.type, at + b * kFormat.block_bytes, block);
    std::memcpy(w.u + b * kFormat.block_elems, block.codes, kFormat.block_elems);
    for (int g = 0; g < kGroups; ++g) read_group<kFormat>(block, g, b * kGroups + g, w);
  }
}

/// To nearest even, for |x| < 2^22; unlike std::nearbyint() it needs no call where there is no instruction for it.
float rounded(float x) {
  constexpr float kMagic = 12582912.f;  // 1.5 2^23
  return x + kMagic - kMagic;
}

/// The largest magnitude; whether all are finite.
struct Largest {
  float value = 0;
  bool finite = true;
  void see(float x) {
    finite = finite && std::isfinite(x);
    value = std::fmax(value, std::fabs(x));
  }
  /// numerator / value, or 0 where all codes are to be zero.
  float inverse(float numerator) const { return !finite || value == 0.f ? 0.f : numerator / value; }
  float scaled(float factor) const { return finite ? value * factor : std::numeric_limits<float>::quiet_NaN(); }
};

/// Table and minimum of each group of 32. What the padding adds has the table of level 0. The functions below fill them
/// and return W.
struct Groups {
  std::uint16_t table[kSuperK / 32];
  std::uint8_t minimum[kSuperK / 32];
};

/// `tables` begins with that of the lowest level; `most` is the largest magnitude of what is multiplied by s.
float level_groups(const Weights& w, std::int64_t groups, int tables, int most, Groups& to) {
  Largest largest;
  for (std::int64_t g = 0; g < groups; ++g) largest.see(w.s[g]);
  const float inverse = largest.inverse(kSuperLevels);
  for (std::int64_t g = 0; g < groups; ++g) {
    const int level = inverse == 0.f ? 0 : static_cast<int>(rounded(w.s[g] * inverse));
    to.table[g] = static_cast<std::uint16_t>(tables + kSuperLevels + level);
  }
  return largest.scaled(static_cast<float>(most) / 127.f);
}

/// `most`: the largest code.
float affine_groups(const Weights& w, std::int64_t groups, int most, Groups& to) {
  const auto most_code = static_cast<float>(most);
  const int tables = most == 15 ? kSuperAffineTables : kSuperFiveTables, stride = most == 15 ? 1 : 2;
  Largest largest;
  for (std::int64_t g = 0; g < groups; ++g) {
    largest.see(w.m[g]);
    largest.see(most_code * w.s[g] - w.m[g]);
  }
  // One less than 127: a table's entry, its level and the minimum are each rounded by at most a half.
  const float levels = largest.inverse(126.f * most_code), minima = largest.inverse(126.f);
  for (std::int64_t g = 0; g < groups; ++g) {
    const int level = levels == 0.f ? 0 : static_cast<int>(rounded(w.s[g] * levels));
    const int minimum = minima == 0.f ? 0 : static_cast<int>(rounded(w.m[g] * minima));
    to.table[g] = static_cast<std::uint16_t>(tables + stride * (kSuperAffine + level));
    to.minimum[g] = static_cast<std::uint8_t>(minimum & 255);
  }
  return largest.scaled(1.f / 126.f);
}

float exponent_groups(const Weights& w, std::int64_t groups, Groups& to) {
  Largest largest;
  std::uint8_t most = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    largest.see(12.f * w.s[g]);
    most = std::max(most, w.exponent[g]);
  }
  for (std::int64_t g = 0; g < groups; ++g)
    to.table[g] = static_cast<std::uint16_t>(kSuperShiftTables +
                                             (largest.finite ? std::min(most - w.exponent[g], kSuperShifts - 1) : 0));
  return largest.scaled(1.f / 127.f);
}

/// One output of one super-block.
template <TensorType kType>
float pack_nibbles(const Weights& w, std::int64_t kc, int lane, const SuperLayout& layout, std::uint8_t* block) {
  constexpr Scheme kScheme = scheme_of(kType);
  const std::int64_t padded = super_padded(kc);
  Groups groups;
  std::fill(std::begin(groups.table), std::end(groups.table), std::uint16_t{kSuperLevels});
  std::memset(groups.minimum, 0, sizeof groups.minimum);
  constexpr ListedValues kListed = listed_values(kType);
  const float scale = kScheme == Scheme::kLevels   ? level_groups(w, kc / 32, 0, 8, groups)
                      : kScheme == Scheme::kValues ? level_groups(w, kc / 32, kListed.table, kListed.most, groups)
                      : kScheme == Scheme::kAffine ? affine_groups(w, kc / 32, 15, groups)
                      : kScheme == Scheme::kFives  ? affine_groups(w, kc / 32, 31, groups)
                                                   : exponent_groups(w, kc / 32, groups);
  for (std::int64_t k0 = 0; k0 < padded; k0 += kSuperStep) {
    std::uint8_t u[kSuperStep] = {};
    std::memcpy(u, w.u + k0, static_cast<std::size_t>(std::min(kSuperStep, kc - k0)));
    std::uint16_t offsets[4];
    for (int g = 0; g < 4; ++g) offsets[g] = static_cast<std::uint16_t>(groups.table[k0 / 32 + g] * 16);
    const std::int64_t at = k0 / kSuperStep * kPanel + lane;
    for (int i = 0; i < 64; ++i) block[at * 64 + i] = static_cast<std::uint8_t>((u[i] & 15) | u[64 + i] << 4);
    if constexpr (kScheme == Scheme::kFives) {
      std::uint8_t fifths[kSuperStep / 8] = {};
      for (int i = 0; i < kSuperStep; ++i) fifths[i / 8] |= static_cast<std::uint8_t>(u[i] >> 4 << i % 8);
      std::memcpy(block + layout.fifths_offset(padded) + at * 16, fifths, sizeof fifths);
    }
    std::memcpy(block + layout.code_bytes(padded) + at * 8, offsets, 8);
    if (layout.minima) std::memcpy(block + layout.minima_offset(padded) + at * 4, groups.minimum + k0 / 32, 4);
  }
  return scale;
}

template <PackedFormat kFormat>
float pack_bytes(const Weights& w, std::int64_t kc, int lane, std::uint8_t* block) {
  constexpr int kGroup = kFormat.group;
  float v[kSuperK] = {};
  // As integers, magnitudes order with NaN above infinity. An infinite or NaN scale shows even if codes are zero.
  std::uint32_t most = 0;
  for (std::int64_t g = 0; g < kc / kGroup; ++g)
    for (int i = 0; i < kGroup; ++i) {
      const std::int64_t at = g * kGroup + i;
      v[at] = w.s[g] * static_cast<float>(w.u[at] - kFormat.zero);
      most = std::max(most, std::bit_cast<std::uint32_t>(v[at]) & 0x7fffffffu);
    }
  Largest largest;
  largest.see(std::bit_cast<float>(most));
  const float inverse = largest.inverse(127.f);
  if (inverse == 0.f) std::fill(std::begin(v), std::end(v), 0.f);
  for (std::int64_t k0 = 0; k0 < super_padded(kc); k0 += 64)
    for (std::int64_t i = 0; i < 64; ++i)
      block[(k0 / 64 * kPanel + lane) * 64 + i] =
          static_cast<std::uint8_t>(static_cast<std::int32_t>(rounded(v[k0 + i] * inverse)));
  return largest.scaled(1.f) / 127.f;
}

/// pack_super_panel() of one type: a template, so that its loops have constant lengths, since packing a model of 8
/// billion weights is part of its start-up time.
template <TensorType kType>
void pack_type(const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k, std::uint8_t* panel) {
  constexpr PackedFormat kFormat = *packed_format(kType);
  const SuperLayout layout = super_layout(kType, k);
  Weights w;
  for (std::int64_t s = 0; s < super_blocks(k); ++s) {
    const std::int64_t k0 = s * kSuperK, kc = std::min(kSuperK, k - k0), size = layout.block_bytes(super_block_k(k, s));
    for (int lane = 0; lane < count; ++lane) {
      read_weights<kFormat>(rows + lane * row_bytes + k0 / kFormat.block_elems * kFormat.block_bytes, kc, w);
      float scale;
      if constexpr (scheme_of(kType) == Scheme::kBytes)
        scale = pack_bytes<kFormat>(w, kc, lane, panel);
      else
        scale = pack_nibbles<kType>(w, kc, lane, layout, panel);
      std::memcpy(panel + size - 64 + lane * 4, &scale, 4);
    }
    panel += size;
  }
}

}  // namespace

constinit const SuperTables kSuperTables = make_tables();

bool runs_super(TensorType type) { return scheme_of(type) != Scheme::kNone; }

SuperLayout super_layout(TensorType type, std::int64_t k) {
  SuperLayout layout;
  layout.nibbles = scheme_of(type) != Scheme::kBytes;
  layout.fives = scheme_of(type) == Scheme::kFives;
  layout.minima = layout.fives || scheme_of(type) == Scheme::kAffine;
  layout.k = k;
  for (std::int64_t s = 0; s < super_blocks(k); ++s) layout.bytes += layout.block_bytes(super_block_k(k, s));
  return layout;
}

void pack_super_panel(TensorType type, const std::uint8_t* rows, std::int64_t row_bytes, int count, std::int64_t k,
                      std::uint8_t* panel) {
  // Codes and a scale of zero bits give a finite product, which is not read.
  if (count < kPanel) std::memset(panel, 0, static_cast<std::size_t>(super_layout(type, k).bytes));
  switch (type) {
    case TensorType::kQ4_0:
      return pack_type<TensorType::kQ4_0>(rows, row_bytes, count, k, panel);
    case TensorType::kQ4_1:
      return pack_type<TensorType::kQ4_1>(rows, row_bytes, count, k, panel);
    case TensorType::kQ4_K:
      return pack_type<TensorType::kQ4_K>(rows, row_bytes, count, k, panel);
    case TensorType::kQ5_0:
      return pack_type<TensorType::kQ5_0>(rows, row_bytes, count, k, panel);
    case TensorType::kQ5_1:
      return pack_type<TensorType::kQ5_1>(rows, row_bytes, count, k, panel);
    case TensorType::kQ5_K:
      return pack_type<TensorType::kQ5_K>(rows, row_bytes, count, k, panel);
    case TensorType::kQ6_K:
      return pack_type<TensorType::kQ6_K>(rows, row_bytes, count, k, panel);
    case TensorType::kQ8_0:
      return pack_type<TensorType::kQ8_0>(rows, row_bytes, count, k, panel);
    case TensorType::kMXFP4:
      return pack_type<TensorType::kMXFP4>(rows, row_bytes, count, k, panel);
    case TensorType::kIQ4_NL:
      return pack_type<TensorType::kIQ4_NL>(rows, row_bytes, count, k, panel);
    case TensorType::kIQ4_XS:
      return pack_type<TensorType::kIQ4_XS>(rows, row_bytes, count, k, panel);
    case TensorType::kIQ3_XXS:
      return pack_type<TensorType::kIQ3_XXS>(rows, row_bytes, count, k, panel);
    case TensorType::kIQ3_S:
      return pack_type<TensorType::kIQ3_S>(rows, row_bytes, count, k, panel);
    default:
      return;
  }
}

}  // namespace dllm::cpu
