#include "cpu/kernels/peak.h"

#include "base/instruction_set.h"

namespace dllm::cpu {
namespace {

#define DLLM_REPEAT_4(X, a, b, c, d) X(a) X(b) X(c) X(d)
#define DLLM_REPEAT_12(X) DLLM_REPEAT_4(X, 0, 1, 2, 3) DLLM_REPEAT_4(X, 4, 5, 6, 7) DLLM_REPEAT_4(X, 8, 9, 10, 11)
#define DLLM_REPEAT_16(X) DLLM_REPEAT_12(X) DLLM_REPEAT_4(X, 12, 13, 14, 15)

/// Every byte is 1, every half and every float a small normal number: some processors use less power for zeros, so they
/// run faster, and subnormals slower. Sums stay far from overflow, saturation and NaN.
alignas(64) constexpr std::uint32_t kOnes[16] = {0x01010101, 0x01010101, 0x01010101, 0x01010101, 0x01010101, 0x01010101,
                                                 0x01010101, 0x01010101, 0x01010101, 0x01010101, 0x01010101, 0x01010101,
                                                 0x01010101, 0x01010101, 0x01010101, 0x01010101};
alignas(64) constexpr float kSmall[16] = {1e-6f, 2e-6f, 1e-6f, 2e-6f, 1e-6f, 2e-6f, 1e-6f, 2e-6f,
                                          1e-6f, 2e-6f, 1e-6f, 2e-6f, 1e-6f, 2e-6f, 1e-6f, 2e-6f};

#if defined(__x86_64__)

// Two such instructions start per cycle with latencies of 4 (Zen 4 and 5, Sapphire Rapids) or 5 cycles (Ice Lake): 8 to
// 10 accumulators would suffice, 16 (AVX2: 12 of its 16 registers) leave room for other schedulers.
#define DLLM_CLOBBERS_AVX                                                                                             \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", \
      "xmm14", "xmm15", "cc"
#define DLLM_PEAK_ZMM(name, instruction, source)                                                              \
  __attribute__((target("avx512f"))) void name(std::int64_t rounds) {                                         \
    asm volatile("vmovdqu32 (%1), %%zmm30\n\tvmovdqu32 (%1), %%zmm31\n\t" DLLM_REPEAT_16(                     \
                     DLLM_ZERO_ZMM) "1:\n\t" DLLM_REPEAT_16(instruction) "dec %0\n\tjnz 1b\n\tvzeroupper\n\t" \
                 : "+r"(rounds)                                                                               \
                 : "r"(source)                                                                                \
                 : DLLM_CLOBBERS_AVX, "xmm30", "xmm31", "memory");                                            \
  }
#define DLLM_PEAK_YMM(name, instruction, source)                                                               \
  __attribute__((target("avx2"))) void name(std::int64_t rounds) {                                             \
    asm volatile("vmovdqu (%1), %%ymm14\n\tvmovdqu (%1), %%ymm15\n\t"                                        \
                 DLLM_REPEAT_12(DLLM_ZERO_YMM) "1:\n\t" DLLM_REPEAT_12(instruction) "dec %0\n\tjnz 1b\n\t"   \
                 "vzeroupper\n\t"                                                                            \
                 : "+r"(rounds)                                                                              \
                 : "r"(source)                                                                               \
                 : DLLM_CLOBBERS_AVX, "memory"); \
  }
#define DLLM_ZERO_ZMM(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define DLLM_ZERO_YMM(n) "vpxor %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n\t"
#define DLLM_VPDPBUSD_ZMM(n) "vpdpbusd %%zmm31, %%zmm30, %%zmm" #n "\n\t"
#define DLLM_VDPBF16PS_ZMM(n) "vdpbf16ps %%zmm31, %%zmm30, %%zmm" #n "\n\t"
#define DLLM_FMA_ZMM(n) "vfmadd231ps %%zmm31, %%zmm30, %%zmm" #n "\n\t"
#define DLLM_VPDPBUSD_YMM(n) "%{vex%} vpdpbusd %%ymm15, %%ymm14, %%ymm" #n "\n\t"
#define DLLM_FMA_YMM(n) "vfmadd231ps %%ymm15, %%ymm14, %%ymm" #n "\n\t"
// Without VNNI: bytes to 16-bit pairs, pairs to 32 bits (ymm14 holds the ones), accumulate. Only the last is a chain;
// the first two of the next accumulator run in parallel.
#define DLLM_MADDUBS_YMM(n)                                                                                \
  "vpmaddubsw %%ymm15, %%ymm14, %%ymm13\n\tvpmaddwd %%ymm14, %%ymm13, %%ymm13\n\tvpaddd %%ymm13, %%ymm" #n \
  ", %%ymm" #n "\n\t"

DLLM_PEAK_ZMM(int8_zmm, DLLM_VPDPBUSD_ZMM, kOnes)
DLLM_PEAK_ZMM(bf16_zmm, DLLM_VDPBF16PS_ZMM, kSmall)
DLLM_PEAK_ZMM(f32_zmm, DLLM_FMA_ZMM, kSmall)
DLLM_PEAK_YMM(int8_ymm, DLLM_VPDPBUSD_YMM, kOnes)
DLLM_PEAK_YMM(maddubs_ymm, DLLM_MADDUBS_YMM, kOnes)
DLLM_PEAK_YMM(f32_ymm, DLLM_FMA_YMM, kSmall)

/// Four sums of 16 x 16, of the same rows and weights; a product takes 16 cycles.
struct alignas(64) PeakTiles {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
};
constexpr PeakTiles kPeakTiles;
#define DLLM_PEAK_TILES(name, instruction, source)                                                               \
  void name(std::int64_t rounds) {                                                                               \
    asm volatile(                                                                                                \
        "ldtilecfg (%1)\n\ttileloadd (%2,%3,1), %%tmm4\n\ttileloadd (%2,%3,1), %%tmm5\n\t"                       \
        "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"                           \
        "1:\n\t" instruction " %%tmm5, %%tmm4, %%tmm0\n\t" instruction " %%tmm5, %%tmm4, %%tmm1\n\t" instruction \
        " %%tmm5, %%tmm4, %%tmm2\n\t" instruction                                                                \
        " %%tmm5, %%tmm4, %%tmm3\n\t"                                                                            \
        "dec %0\n\tjnz 1b\n\ttilerelease\n\t"                                                                    \
        : "+r"(rounds)                                                                                           \
        : "r"(&kPeakTiles), "r"(source), "r"(std::int64_t{0})                                                    \
        : "cc", "memory");                                                                                       \
  }
DLLM_PEAK_TILES(int8_tiles, "tdpbssd", kOnes)
DLLM_PEAK_TILES(bf16_tiles, "tdpbf16ps", kSmall)

#elif defined(__aarch64__)

#define DLLM_REPEAT_24(X) DLLM_REPEAT_16(X) DLLM_REPEAT_4(X, 16, 17, 18, 19) DLLM_REPEAT_4(X, 20, 21, 22, 23)
#define DLLM_PEAK_NEON(name, instruction, source)                                                                 \
  void name(std::int64_t rounds) {                                                                                \
    asm volatile(".arch armv8.2-a+dotprod+i8mm+simd\n\tldr q30, [%1]\n\tldr q31, [%1]\n\t" DLLM_REPEAT_24(        \
                     DLLM_ZERO_NEON) "1:\n\t" DLLM_REPEAT_24(instruction) "subs %0, %0, #1\n\tb.ne 1b\n\t"        \
                 : "+r"(rounds)                                                                                   \
                 : "r"(source)                                                                                    \
                 : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
                   "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31", "cc", "memory");  \
  }
#define DLLM_ZERO_NEON(n) "movi v" #n ".2d, #0\n\t"
#define DLLM_SDOT(n) "sdot v" #n ".4s, v30.16b, v31.16b\n\t"
#define DLLM_SMMLA(n) "smmla v" #n ".4s, v30.16b, v31.16b\n\t"
#define DLLM_FMLA(n) "fmla v" #n ".4s, v30.4s, v31.4s\n\t"

DLLM_PEAK_NEON(int8_sdot, DLLM_SDOT, kOnes)
DLLM_PEAK_NEON(int8_smmla, DLLM_SMMLA, kOnes)
DLLM_PEAK_NEON(f32_fmla, DLLM_FMLA, kSmall)

#endif

}  // namespace

int list_peak_loops(PeakLoop (&loops)[kMaxPeakLoops]) {
  int count = 0;
#if defined(__x86_64__)
  if (runs(InstructionSet::kAvx512Vnni)) loops[count++] = {"vpdpbusd zmm", PeakKind::kInt8, 16 * 128, int8_zmm};
  if (runs(InstructionSet::kAvxVnni)) loops[count++] = {"vpdpbusd ymm", PeakKind::kInt8, 12 * 64, int8_ymm};
  if (runs(InstructionSet::kAvx2))
    loops[count++] = {"vpmaddubsw+vpmaddwd+vpaddd ymm", PeakKind::kInt8, 12 * 64, maddubs_ymm};
  if (runs(InstructionSet::kAvx512Bf16)) loops[count++] = {"vdpbf16ps zmm", PeakKind::kBf16, 16 * 64, bf16_zmm};
  if (runs(InstructionSet::kAvx512)) loops[count++] = {"vfmadd231ps zmm", PeakKind::kF32, 16 * 32, f32_zmm};
  if (runs(InstructionSet::kAvx2)) loops[count++] = {"vfmadd231ps ymm", PeakKind::kF32, 12 * 16, f32_ymm};
  if (runs(InstructionSet::kAmx)) loops[count++] = {"tdpbssd", PeakKind::kInt8Tiles, 4 * 32768, int8_tiles};
  if (runs(InstructionSet::kAmxBf16)) loops[count++] = {"tdpbf16ps", PeakKind::kBf16Tiles, 4 * 16384, bf16_tiles};
#elif defined(__aarch64__)
  if (runs(InstructionSet::kNeon)) loops[count++] = {"sdot", PeakKind::kInt8, 24 * 32, int8_sdot};
  if (runs(InstructionSet::kNeonI8mm)) loops[count++] = {"smmla", PeakKind::kInt8, 24 * 64, int8_smmla};
  loops[count++] = {"fmla", PeakKind::kF32, 24 * 8, f32_fmla};
#endif
  return count;
}

namespace {

// Baseline vectors are enough: two 16-byte loads per cycle are several times what memory delivers to a core. Two to
// four streams keep more misses in flight than one (Zen 5, one thread: 40 instead of 32 GB/s); the best number depends
// on the machine and on the number of threads, so the caller tries them.
template <std::size_t streams>
std::uint64_t read_streams(const std::byte* data, std::size_t bytes) {
  using Line [[gnu::vector_size(64), gnu::may_alias]] = std::uint64_t;
  const std::size_t share = bytes / streams;
  Line a{}, b{};
  for (std::size_t i = 0; i < share; i += 256)
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const auto* lines = reinterpret_cast<const Line*>(data + stream * share + i);
      a |= lines[0] | lines[1];
      b |= lines[2] | lines[3];
    }
  a |= b;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < 8; ++i) all |= a[i];
  return all;
}

}  // namespace

std::uint64_t peak_read(const std::byte* data, std::size_t bytes, int streams) {
  if (streams == 4) return read_streams<4>(data, bytes);
  if (streams == 2) return read_streams<2>(data, bytes);
  return read_streams<1>(data, bytes);
}

}  // namespace dllm::cpu
