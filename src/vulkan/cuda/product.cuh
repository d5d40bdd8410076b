// Products with packed codes of groups of 32 by the matrix unit, as shaders/matrices/linear_matrices.comp. Panels hold codes
// in the order in which an operation of 16 x 8 x 32 wants them: a word is of an output and four neighbouring k, so a lane's
// registers are two words of a panel, with no byte moved.
//
// DLLM_CODES, DLLM_MINIMUM: a compilation has the shapes of one kind of codes (scripts/cuda_kernels.py).
#include "exact.cuh"
#include "pairs.cuh"

namespace {

struct Push {
  const std::uint32_t* panels;
  const std::int8_t* values;  // [rows][k]
  const float* scales;        // [rows][k / 32]
  const int* sums;            // [rows][k / 16]
  const float* bias;          // [n], if there is one
  float* result;              // [rows][n]
  const int* count;           // [1], rows
  const float* route;         // [rows][2 used]
  std::uint32_t k, n, panel_words, high, scale, minimum, super, super_minimum, has_bias, used, expert_words, shared_rows;
  std::int32_t zero_point;
  std::uint32_t scale_kind, table;  // cpu::Scales; which values nibbles stand for
};

enum Codes { kNibble = 2, kNibble5 = 3, kByte = 5, kTable = 6 };
enum Scales { kHalf = 0, kSuper = 1, kExponent = 3 };

__device__ inline std::uint32_t half_bits(const std::uint8_t* at) { return __ldg(reinterpret_cast<const unsigned short*>(at)); }

#ifdef __CUDACC__
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* from) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at));
}
__device__ inline void load_matrices2(std::uint32_t (&to)[2], const void* from) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at));
}

__device__ inline void multiply_add(int (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(kMagicBits));
}
#endif

// Sixteen values, a byte each.
struct Table {
  std::uint32_t words[4];
};
// E2M1 doubled, plus 12; and IQ4_NL's values plus 128.
__device__ inline Table table_of(std::uint32_t which) {
  if (which == 0) return {{0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u}};
  return {{0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u}};
}
__device__ inline std::uint32_t look_up(std::uint32_t four, const Table& table) {
  std::uint32_t selector = four & 0x07070707u;
  selector = (selector | selector >> 4) & 0x00ff00ffu;
  selector = (selector | selector >> 8) & 0x0000ffffu;
  const std::uint32_t low = __byte_perm(table.words[0], table.words[1], selector),
                      high = __byte_perm(table.words[2], table.words[3], selector);
  const std::uint32_t mask = (four >> 3 & 0x01010101u) * 255u;
  return (low & ~mask) | (high & mask);
}

template <int kCodes, bool kMin, int kTiles, int kRowWarps, int kPanels, int kWide, bool kExperts>
struct Product {
  static constexpr int kRows = 8 * kTiles * kRowWarps, kThreads = 32 * kPanels / kWide * kRowWarps;
  static constexpr int kCodeBytes = kCodes == kByte ? 512 : 256, kHighBytes = kCodes == kNibble5 ? 64 : 0;
  // Groups that are multiplied between two barriers: as many as leave room for two chunks.
  static constexpr int kChunk = kRows * kPanels >= 128 && (kCodes == kByte || (kCodes == kNibble5 && kMin)) ? 4 : 8;
  // Bytes from a row of values to the next. The 16 bytes of padding put the same column of eight rows into different banks of
  // shared memory.
  static constexpr int kRowStride = 32 * kChunk + 16;
  static constexpr int kStageBytes = kPanels * kChunk * (kCodeBytes + kHighBytes) + kRows * kRowStride;
  static constexpr int kScaleBytes = 2 * (kPanels * kChunk * 16 * 4 * (kMin ? 2 : 1) + kChunk * kRows * (kMin ? 12 : 8));
  static constexpr int kOtherBytes = kScaleBytes + kRows * 8 + 64;
  static constexpr int kFit = (48 * 1024 - kOtherBytes) / kStageBytes;
  static constexpr int kStages = kFit > 4 ? 4 : kFit;
  static_assert(kStages >= 2);

  struct Shared {
    alignas(16) std::uint8_t codes[kStages][kPanels][kChunk * kCodeBytes];
    alignas(16) std::uint8_t high[kStages][kPanels][kHighBytes == 0 ? 16 : kChunk * kHighBytes];
    alignas(16) std::uint8_t values[kStages][kRows * kRowStride];
    float2 factors[2][kChunk][kRows];
    float scales[2][kPanels][kChunk * 16];
    float minima[kMin ? 2 : 1][kMin ? kPanels : 1][kMin ? kChunk * 16 : 1];
    float offsets[kMin ? 2 : 1][kMin ? kChunk : 1][kMin ? kRows : 1];
    Rows<kRows> places;
  };

  // A scale and a minimum as they are in memory: loaded a chunk before they are decoded, so that nothing waits.
  struct Raw {
    std::uint32_t scale, super, minimum, super_minimum;
  };
  static __device__ Raw load_scale(const Push& p, const std::uint8_t* panel, std::uint32_t group, std::uint32_t output) {
    Raw raw = {};
    const std::uint32_t at = group * 16 + output, super = 2 * (group / 8 * 16 + output);
    raw.scale = p.scale_kind == kHalf ? half_bits(panel + p.scale + 2 * at) : __ldg(panel + p.scale + at);
    if (p.scale_kind == kSuper) raw.super = half_bits(panel + p.super + super);
    if (kMin) raw.minimum = p.scale_kind == kHalf ? half_bits(panel + p.minimum + 2 * at) : __ldg(panel + p.minimum + at);
    if (kMin && p.scale_kind == kSuper) raw.super_minimum = half_bits(panel + p.super_minimum + super);
    return raw;
  }
  static __device__ float scale_of(const Push& p, const Raw& raw) {
    if (p.scale_kind == kHalf) return widen(raw.scale);
    if (p.scale_kind == kExponent)
      return __uint_as_float(raw.scale > 1 ? (raw.scale - 1) << 23 : raw.scale == 1 ? 0x00400000u : 0x00200000u);
    const int integer = kMin ? static_cast<int>(raw.scale) : static_cast<int>(static_cast<std::int8_t>(raw.scale));
    return __fmul_rn(widen(raw.super), static_cast<float>(integer));
  }
  static __device__ float minimum_of(const Push& p, const Raw& raw) {
    if (p.scale_kind == kHalf) return __fsub_rn(0.0f, widen(raw.minimum));
    return __fmul_rn(widen(raw.super_minimum), static_cast<float>(raw.minimum));
  }

  static __device__ void run(const Push& p) {
    __shared__ Shared s;
    const std::uint8_t* base = reinterpret_cast<const std::uint8_t*>(p.panels);
    if constexpr (kExperts) {
      base += static_cast<std::size_t>(blockIdx.y) * p.expert_words * 4;
      const int pairs = *p.count * static_cast<int>(p.used);
      for (int begin = 0; begin < pairs;) {
        const int found = take_pairs(s.places, blockIdx.y, begin, pairs, p.route, p.used, p.shared_rows != 0);
        if (found == 0) return;
        tile(p, s, base, found);
      }
    } else {
      const int found = take_rows(s.places, blockIdx.y * kRows, *p.count);
      if (found > 0) tile(p, s, base, found);
    }
  }

  static __device__ void tile(const Push& p, Shared& s, const std::uint8_t* base, int found) {
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int my_panel = warp / kRowWarps * kWide, my_rows = warp % kRowWarps * 8 * kTiles;
    const std::uint32_t panels = (p.n + 15) / 16, first_panel = blockIdx.x * kPanels, groups = p.k / 32;
    const std::size_t panel_bytes = static_cast<std::size_t>(p.panel_words) * 4;
    const int chunks = (groups + kChunk - 1) / kChunk;

    const auto panel_at = [&](int i) { return base + min(first_panel + i, panels - 1) * panel_bytes; };
    constexpr int kRowLoads = (kRows * kChunk * 2 + kThreads - 1) / kThreads;
    std::uint32_t row_at[kRowLoads];
#pragma unroll
    for (int i = 0; i < kRowLoads; ++i) {
      const int item = min(i * kThreads + thread, kRows * kChunk * 2 - 1);
      row_at[i] = s.places.source[item / (2 * kChunk)] * p.k + item % (2 * kChunk) * 16;
    }
    const auto fetch = [&](int chunk, int stage) {
      const std::uint32_t first = chunk * kChunk;
      constexpr int kPieces = kChunk * kCodeBytes / 16;
      if (chunk < chunks) {
#pragma unroll
        for (int i = 0; i < (kPanels * kPieces + kThreads - 1) / kThreads; ++i) {
          const int item = i * kThreads + thread, panel = item / kPieces, piece = item % kPieces;
          constexpr int kOfGroup = kCodeBytes / 16;
          if (first + piece / kOfGroup < groups)
            copy_async<16>(&s.codes[stage][panel][16 * (piece ^ (piece >> 3 & 1) << 1)],
                   panel_at(panel) + static_cast<std::size_t>(first) * kCodeBytes + 16 * piece);
        }
        if constexpr (kHighBytes != 0) {
          constexpr int kHighPieces = kChunk * kHighBytes / 16;
          for (int item = thread; item < kPanels * kHighPieces; item += kThreads) {
            const int panel = item / kHighPieces, piece = item % kHighPieces;
            if (first + piece / (kHighBytes / 16) < groups)
              copy_async<16>(&s.high[stage][panel][16 * piece],
                     panel_at(panel) + p.high + static_cast<std::size_t>(first) * kHighBytes + 16 * piece);
          }
        }
#pragma unroll
        for (int i = 0; i < kRowLoads; ++i) {
          const int item = i * kThreads + thread, row = item / (2 * kChunk), piece = item % (2 * kChunk);
          if ((kRows * kChunk * 2 % kThreads == 0 || item < kRows * kChunk * 2) && first + piece / 2 < groups)
            copy_async<16>(&s.values[stage][row * kRowStride + 16 * piece],
                   p.values + (row_at[i] + first * 32));
        }
      }
      commit();
    };

    constexpr int kScaleLoads = (kPanels * kChunk * 16 + kThreads - 1) / kThreads;
    constexpr int kFactorLoads = (kRows * kChunk + kThreads - 1) / kThreads;
    Raw scale_held[kScaleLoads];
    float factor_held[kFactorLoads];
    int2 sum_held[kFactorLoads];
    std::uint32_t factor_at[kFactorLoads];
#pragma unroll
    for (int i = 0; i < kFactorLoads; ++i)
      factor_at[i] = s.places.source[min(i * kThreads + thread, kRows * kChunk - 1) / kChunk] * groups;
    const auto hold = [&](int chunk) {
      const std::uint32_t first = chunk * kChunk;
#pragma unroll
      for (int i = 0; i < kScaleLoads; ++i) {
        const int item = i * kThreads + thread, panel = item / (kChunk * 16), group = item / 16 % kChunk;
        const std::uint32_t at = min(first + group, groups - 1);
        scale_held[i] = load_scale(p, panel_at(panel), at, item % 16);
      }
#pragma unroll
      for (int i = 0; i < kFactorLoads; ++i) {
        const std::uint32_t at = factor_at[i] + min(first + (i * kThreads + thread) % kChunk, groups - 1);
        factor_held[i] = __ldg(p.scales + at);
        sum_held[i] = __ldg(reinterpret_cast<const int2*>(p.sums) + at);
      }
    };
    const auto store = [&](int chunk) {
#pragma unroll
      for (int i = 0; i < kScaleLoads; ++i) {
        const int item = i * kThreads + thread;
        (&s.scales[chunk & 1][0][0])[item] = scale_of(p, scale_held[i]);
        if constexpr (kMin) (&s.minima[chunk & 1][0][0])[item] = minimum_of(p, scale_held[i]);
      }
#pragma unroll
      for (int i = 0; i < kFactorLoads; ++i) {
        const int item = i * kThreads + thread, row = item / kChunk, group = item % kChunk;
        const int sum = sum_held[i].x + sum_held[i].y;
        if (kRows * kChunk % kThreads == 0 || item < kRows * kChunk) {
          s.factors[chunk & 1][group][row] =
              make_float2(factor_held[i], __fadd_rn(kMagic, static_cast<float>(p.zero_point * sum)));
          if constexpr (kMin) s.offsets[chunk & 1][group][row] = __fmul_rn(-factor_held[i], static_cast<float>(sum));
        }
      }
    };

    float total[kWide][kTiles][4];
#pragma unroll
    for (int i = 0; i < kWide * kTiles * 4; ++i) (&total[0][0][0])[i] = 0.0f;

#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) fetch(i, i);
    hold(0);
    const int q = lane & 3, o = lane >> 2;
    const int low_place = 4 * (16 * q + (o ^ (q >> 1) << 3)), high_place = low_place ^ 32;
    const int matrix_place = kTiles == 1 ? lane % 8 * kRowStride + (lane >> 3 & 1) * 16
                                         : (lane >> 4) * 8 * kRowStride + lane % 8 * kRowStride + (lane >> 3 & 1) * 16;
    const Table table = table_of(p.table);
    const auto decode = [&](std::uint32_t four) { return kCodes == kTable ? look_up(four, table) : four; };
    int stage = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      store(chunk);
      wait<kStages - 2>();
      __syncthreads();
      fetch(chunk + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      if (chunk + 1 < chunks) hold(chunk + 1);
      const std::uint8_t* const rows = &s.values[stage][my_rows * kRowStride + matrix_place];
      const auto multiply = [&](int group) {
        std::uint32_t b[kTiles][2];
        if constexpr (kTiles == 1) {
          load_matrices2(b[0], rows + group * 32);
        } else {
#pragma unroll
          for (int t = 0; t < kTiles; t += 2) {
            std::uint32_t four[4];
            load_matrices(four, rows + t * 8 * kRowStride + group * 32);
            b[t][0] = four[0], b[t][1] = four[1], b[t + 1][0] = four[2], b[t + 1][1] = four[3];
          }
        }
        float d[kTiles][2], shift[kTiles][2], offset[kTiles][2];
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const float4 pair = *reinterpret_cast<const float4*>(&s.factors[chunk & 1][group][my_rows + 8 * t + 2 * q]);
          d[t][0] = pair.x, d[t][1] = pair.z, shift[t][0] = pair.y, shift[t][1] = pair.w;
          if constexpr (kMin) {
            const float2 two = *reinterpret_cast<const float2*>(&s.offsets[chunk & 1][group][my_rows + 8 * t + 2 * q]);
            offset[t][0] = two.x, offset[t][1] = two.y;
          }
        }
#pragma unroll
        for (int w = 0; w < kWide; ++w) {
          const std::uint8_t* const codes = s.codes[stage][my_panel + w] + group * kCodeBytes;
          const float* const scales = &s.scales[chunk & 1][my_panel + w][group * 16 + o];
          std::uint32_t a[4];
          const std::uint32_t one = *reinterpret_cast<const std::uint32_t*>(codes + low_place);
          const std::uint32_t two = *reinterpret_cast<const std::uint32_t*>(codes + high_place);
          if constexpr (kCodes == kByte) {
            a[0] = one, a[1] = two;
            a[2] = *reinterpret_cast<const std::uint32_t*>(codes + 256 + low_place);
            a[3] = *reinterpret_cast<const std::uint32_t*>(codes + 256 + high_place);
          } else {
            a[0] = decode(one & 0x0f0f0f0fu), a[1] = decode(two & 0x0f0f0f0fu);
            a[2] = decode(one >> 4 & 0x0f0f0f0fu), a[3] = decode(two >> 4 & 0x0f0f0f0fu);
            if constexpr (kHighBytes != 0) {
              const std::uint8_t* const high = &s.high[stage][my_panel + w][group * kHighBytes];
              const std::uint32_t h1 = *reinterpret_cast<const std::uint32_t*>(high + 4 * o);
              const std::uint32_t h2 = *reinterpret_cast<const std::uint32_t*>(high + 4 * o + 32);
              a[0] |= (h1 >> q & 0x01010101u) << 4, a[1] |= (h2 >> q & 0x01010101u) << 4;
              a[2] |= (h1 >> (4 + q) & 0x01010101u) << 4, a[3] |= (h2 >> (4 + q) & 0x01010101u) << 4;
            }
          }
          const float scale[2] = {scales[0], scales[8]};
          float minimum[2] = {};
          if constexpr (kMin) {
            minimum[0] = s.minima[chunk & 1][my_panel + w][group * 16 + o];
            minimum[1] = s.minima[chunk & 1][my_panel + w][group * 16 + o + 8];
          }
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
            int sums[4];
            multiply_add(sums, a, b[t][0], b[t][1]);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float sum = __fsub_rn(__int_as_float(sums[e]), shift[t][e & 1]);
              total[w][t][e] = __fmaf_rn(sum, __fmul_rn(scale[e >> 1], d[t][e & 1]), total[w][t][e]);
            }
            if constexpr (kMin) {
#pragma unroll
              for (int e = 0; e < 4; ++e) total[w][t][e] = __fmaf_rn(minimum[e >> 1], offset[t][e & 1], total[w][t][e]);
            }
          }
        }
      };
      const int count = static_cast<int>(groups) - chunk * kChunk;
      if (count >= kChunk) {
#pragma unroll
        for (int group = 0; group < kChunk; ++group) multiply(group);
      } else {
#pragma unroll 1
        for (int group = 0; group < count; ++group) multiply(group);
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    wait<0>();

#pragma unroll
    for (int w = 0; w < kWide; ++w)
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = my_rows + 8 * t + 2 * q + (e & 1);
          const std::uint32_t panel = first_panel + my_panel + w, output = panel * 16 + o + 8 * (e >> 1);
          if (row < found && panel < panels && output < p.n)
            p.result[static_cast<std::size_t>(s.places.target[row]) * p.n + output] =
                p.has_bias != 0 ? __fadd_rn(total[w][t][e], p.bias[output]) : total[w][t][e];
        }
  }
};

}  // namespace
