// No include guard: compiled once per instruction set.
//
// Every quantized format becomes one canonical form: per weight an unsigned byte u, per group of `group` weights a
// float scale s and, where the format has one, a float minimum m:  w = s * (u - zero) - m,  with the format's constant
// zero. One integer micro-kernel then serves them all. The loops run over arrays of fixed length, so that the compiler
// vectorises them for the set at hand.

namespace dllm::cpu::DLLM_ISA {
namespace {

struct Int8Format {
  TensorType type;
  std::int32_t block_elems;
  std::int32_t block_bytes;
  std::int32_t group;  ///< weights per scale: 16 or 32
  std::int32_t zero;
  bool has_min;
  bool full_bytes;  ///< u exceeds 127
  /// Consecutive blocks of a row: u[elems]; scale and min of group g at [g * kPanel] (a lane of the panel's vectors).
  void (*unpack)(const std::uint8_t* blocks, std::int64_t elems, std::uint8_t* u, float* scale, float* min);
};

using UnpackBlock = void(const std::uint8_t* block, std::uint8_t* u, float* scale, float* min);

/// The loop over blocks around one format's block, which is inlined.
template <UnpackBlock kBlock, std::int32_t kElems, std::int32_t kBytes, std::int32_t kGroup>
void unpack_blocks(const std::uint8_t* blocks, std::int64_t elems, std::uint8_t* u, float* scale, float* min) {
  for (std::int64_t i = 0; i < elems; i += kElems) {
    kBlock(blocks, u + i, scale, min);
    blocks += kBytes;
    scale += kElems / kGroup * kPanel;
    min += kElems / kGroup * kPanel;
  }
}

template <UnpackBlock kBlock, std::int32_t kElems, std::int32_t kBytes, std::int32_t kGroup>
constexpr Int8Format make_format(TensorType type, std::int32_t zero, bool has_min, bool full_bytes) {
  return {type, kElems, kBytes, kGroup, zero, has_min, full_bytes, unpack_blocks<kBlock, kElems, kBytes, kGroup>};
}

/// 32 nibbles of 16 bytes: the low ones are the first half. Eight bytes at a time: for loops over 16 bytes GCC 12 joins
/// two 16-byte stores by a 32-byte load, which waits for both to reach the cache.
inline void unpack_nibbles(const std::uint8_t* q, std::uint8_t* u) {
  std::uint64_t words[2];
  __builtin_memcpy(words, q, sizeof words);
  constexpr std::uint64_t kLow = 0x0f0f0f0f0f0f0f0fu;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t low = words[i] & kLow, high = (words[i] >> 4) & kLow;
    __builtin_memcpy(u + 8 * i, &low, sizeof low);
    __builtin_memcpy(u + 16 + 8 * i, &high, sizeof high);
  }
}

/// Adds bit i of a 32-bit mask, as 16, to u[i].
inline void add_fifth_bits(const std::uint8_t* mask, std::uint8_t* u) {
  std::uint32_t word;
  __builtin_memcpy(&word, mask, 4);
  for (int i = 0; i < 32; ++i) u[i] = static_cast<std::uint8_t>(u[i] | (((word >> i) & 1u) << 4));
}

inline void unpack_q4_0(const std::uint8_t* b, std::uint8_t* u, float* scale, float*) {
  scale[0] = half_at(b);
  unpack_nibbles(b + 2, u);
}
inline void unpack_q4_1(const std::uint8_t* b, std::uint8_t* u, float* scale, float* min) {
  scale[0] = half_at(b);
  min[0] = -half_at(b + 2);
  unpack_nibbles(b + 4, u);
}
inline void unpack_q5_0(const std::uint8_t* b, std::uint8_t* u, float* scale, float*) {
  scale[0] = half_at(b);
  unpack_nibbles(b + 6, u);
  add_fifth_bits(b + 2, u);
}
inline void unpack_q5_1(const std::uint8_t* b, std::uint8_t* u, float* scale, float* min) {
  scale[0] = half_at(b);
  min[0] = -half_at(b + 2);
  unpack_nibbles(b + 8, u);
  add_fifth_bits(b + 4, u);
}
inline void unpack_q8_0(const std::uint8_t* b, std::uint8_t* u, float* scale, float*) {
  scale[0] = half_at(b);
  for (int i = 0; i < 32; ++i) u[i] = static_cast<std::uint8_t>(b[2 + i] ^ 0x80);
}

/// The eight 6-bit scales and minima of Q4_K and Q5_K, packed in 12 bytes: the first four whole, the upper bits of the
/// last four in the two spare bits of the first.
inline void k_scales(const std::uint8_t* b, float* scale, float* min) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const std::uint8_t* q = b + 4;
  for (int j = 0; j < 8; ++j) {
    const int s = j < 4 ? q[j] & 63 : (q[j + 4] & 15) | ((q[j - 4] >> 6) << 4);
    const int m = j < 4 ? q[j + 4] & 63 : (q[j + 4] >> 4) | ((q[j] >> 6) << 4);
    scale[j * kPanel] = d * static_cast<float>(s);
    min[j * kPanel] = dmin * static_cast<float>(m);
  }
}
inline void unpack_k_nibbles(const std::uint8_t* q, std::uint8_t* u) {
  for (int j = 0; j < 4; ++j, q += 32, u += 64) {
    for (int i = 0; i < 32; ++i) u[i] = static_cast<std::uint8_t>(q[i] & 15);
    for (int i = 0; i < 32; ++i) u[32 + i] = static_cast<std::uint8_t>(q[i] >> 4);
  }
}
inline void unpack_q4_k(const std::uint8_t* b, std::uint8_t* u, float* scale, float* min) {
  k_scales(b, scale, min);
  unpack_k_nibbles(b + 16, u);
}
inline void unpack_q5_k(const std::uint8_t* b, std::uint8_t* u, float* scale, float* min) {
  k_scales(b, scale, min);
  unpack_k_nibbles(b + 48, u);
  const std::uint8_t* high = b + 16;
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 32; ++i) u[32 * j + i] = static_cast<std::uint8_t>(u[32 * j + i] | (((high[i] >> j) & 1) << 4));
}
inline void unpack_q6_k(const std::uint8_t* b, std::uint8_t* u, float* scale, float*) {
  const std::uint8_t *low = b, *high = b + 128, *scales = b + 192;
  const float d = half_at(b + 208);
  for (int g = 0; g < 16; ++g) scale[g * kPanel] = d * static_cast<float>(static_cast<std::int8_t>(scales[g]));
  for (int n = 0; n < 2; ++n, low += 64, high += 32, u += 128)
    for (int i = 0; i < 32; ++i) {
      u[i] = static_cast<std::uint8_t>((low[i] & 15) | ((high[i] & 3) << 4));
      u[32 + i] = static_cast<std::uint8_t>((low[32 + i] & 15) | (((high[i] >> 2) & 3) << 4));
      u[64 + i] = static_cast<std::uint8_t>((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
      u[96 + i] = static_cast<std::uint8_t>((low[32 + i] >> 4) | ((high[i] >> 6) << 4));
    }
}

/// E2M1 values doubled are the integers 0 1 2 3 4 6 8 12 and their negatives; 12 makes them unsigned. The halved E8M0
/// scale 2^(e - 128) makes up for the doubling.
inline void unpack_mxfp4(const std::uint8_t* b, std::uint8_t* u, float* scale, float*) {
  static constexpr std::uint8_t kDoubled[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
  const std::uint32_t e = b[0];
  const std::uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;  // 2^-128 and 2^-127 are subnormal
  __builtin_memcpy(scale, &bits, 4);
  unpack_nibbles(b + 1, u);
  for (int i = 0; i < 32; ++i) u[i] = kDoubled[u[i]];
}

constexpr Int8Format kInt8Formats[] = {
    make_format<unpack_q4_0, 32, 18, 32>(TensorType::kQ4_0, 8, false, false),
    make_format<unpack_q4_1, 32, 20, 32>(TensorType::kQ4_1, 0, true, false),
    make_format<unpack_q5_0, 32, 22, 32>(TensorType::kQ5_0, 16, false, false),
    make_format<unpack_q5_1, 32, 24, 32>(TensorType::kQ5_1, 0, true, false),
    make_format<unpack_q8_0, 32, 34, 32>(TensorType::kQ8_0, 128, false, true),
    make_format<unpack_q4_k, 256, 144, 32>(TensorType::kQ4_K, 0, true, false),
    make_format<unpack_q5_k, 256, 176, 32>(TensorType::kQ5_K, 0, true, false),
    make_format<unpack_q6_k, 256, 210, 16>(TensorType::kQ6_K, 32, false, false),
    make_format<unpack_mxfp4, 32, 17, 32>(TensorType::kMXFP4, 12, false, false),
};

inline const Int8Format* int8_format(TensorType type) {
  for (const Int8Format& format : kInt8Formats)
    if (format.type == type) return &format;
  return nullptr;
}
bool runs_int8(TensorType type) { return int8_format(type) != nullptr; }

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
