// op::Attention over caches of F16 and BF16, as shaders/attention.comp.
#include "codes.cuh"
#include "exact.cuh"

struct PlanRow {
  const std::uint32_t* cache;
  int position, limit, first, first_tile, tile_count, canvas;
};
struct AttentionPush {
  const float* query;  // [rows][heads][head_dim]
  float* result;
  const PlanRow* rows;
  const int* visible;
  const int* tiles;
  const int* count;
  Codes codes;  // of the result, if it has places
  std::uint32_t heads, kv_heads, head_dim, tile_words, key_words, value_words;
  int window;
  float scale;
  std::uint32_t exact;
};

constexpr int kRows = 4, kThreads = 128, kKeys = 64, kMostDim = 128, kStride = kMostDim + 8;  // of halves: no bank twice

template <bool kBF16>
__device__ inline float number_of(std::uint32_t word, int index) {
  if (kBF16) return __uint_as_float(index == 0 ? word << 16 : word & 0xffff0000u);
  return widen(index == 0 ? word & 0xffffu : word >> 16);
}

// A block computes a head of four rows: a warp is a row where weights are made, a thread is a key for scores and a
// dimension for outputs. Rows of one sequence share what is read of its cache.
template <bool kBF16>
__device__ inline void attention(const AttentionPush& p) {
  __shared__ alignas(16) unsigned short keys[kKeys * kStride];
  __shared__ alignas(16) unsigned short values[kKeys * kStride];
  __shared__ alignas(16) float query[kRows][kMostDim];
  __shared__ alignas(16) float weights[kRows][kKeys];
  __shared__ float factors[kRows], inverses[kRows];
  __shared__ int places[kKeys], begins[kRows], ends[kRows];
  __shared__ PlanRow plans[kRows];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int head = blockIdx.x, row = blockIdx.y * kRows, dim = p.head_dim;
  const int rows = min(*p.count - row, kRows);
  if (rows <= 0) return;
  const int kv_head = head / static_cast<int>(p.heads / p.kv_heads);
  if (thread < rows) plans[thread] = p.rows[row + thread];
  for (int r = 0; r < kRows; ++r)
    if (thread < dim)
      query[r][thread] =
          r < rows ? __fmul_rn(p.query[(static_cast<std::size_t>(row + r) * p.heads + head) * dim + thread], p.scale) : 0.0f;
  __syncthreads();

  float mixed[kRows] = {}, top = -1e30f, sum = 0.0f;  // the last two: of the warp's row
  for (int leader = 0, last = 0; leader < rows; leader = last) {
    const PlanRow plan = plans[leader];
    last = leader + 1;
    while (last < rows && plans[last].cache == plan.cache && plans[last].first_tile == plan.first_tile &&
           plans[last].tile_count == plan.tile_count)
      ++last;
    const bool mine = warp >= leader && warp < last;
    const PlanRow own = plans[min(warp, rows - 1)];
    const int least = p.window > 0 ? max(0, own.first - p.window + 1) : 0;
    const auto fetch = [&](unsigned short* to, int tile, std::uint32_t words) {
      const int pieces = dim / 8;
      const std::uint32_t* from = plan.cache + static_cast<std::size_t>(tile) * p.tile_words + words +
                                  static_cast<std::size_t>(kv_head) * kKeys * (dim / 2);
      for (int i = thread; i < kKeys * pieces; i += kThreads)
        copy_async<16>(to + i / pieces * kStride + i % pieces * 8, from + i * 4);
    };
    const int stop = plan.first_tile + plan.tile_count;
    // Where a tile ends and its positions are loaded while the one before is computed.
    int begin = p.tiles[plan.first_tile], end = p.tiles[plan.first_tile + min(plan.tile_count, 1)];
    const int all = p.tiles[stop];
    const auto position = [&](int at) { return at < all ? p.visible[at] : -1; };
    int one = position(begin + lane), two = position(begin + lane + 32);
    if (plan.tile_count > 0) {
      const int first = __shfl_sync(~0u, one, 0) / kKeys;
      fetch(keys, first, p.key_words);
      commit();
      fetch(values, first, p.value_words);
      commit();
    }
    for (int tile = plan.first_tile; tile < stop; ++tile) {
      const int count = end - begin;
      if (lane >= count) one = -1;
      if (lane + 32 >= count) two = -1;
      // Positions ascend, so those that a row sees are a range.
      const unsigned low = __ballot_sync(~0u, mine && one >= least && one >= 0 && one < own.limit);
      const unsigned high = __ballot_sync(~0u, mine && two >= least && two >= 0 && two < own.limit);
      const int from = low != 0 ? __ffs(low) - 1 : high != 0 ? 31 + __ffs(high) : 0;
      const int to = high != 0 ? 64 - __clz(high) : low != 0 ? 32 - __clz(low) : 0;
      if (lane == 0) begins[warp] = from, ends[warp] = to;
      if (warp == 0) places[lane] = one % kKeys, places[lane + 32] = two % kKeys;
      begin = end;
      end = p.tiles[min(tile + 2, stop)];
      one = position(begin + lane);
      two = position(begin + lane + 32);
      wait<1>();
      __syncthreads();
      const int key = thread % kKeys, pair = thread / kKeys * 2;
      if (key < count) {
        float scores[2] = {};
        const unsigned short* const at = keys + places[key] * kStride;
#pragma unroll 4
        for (int d = 0; d < dim; d += 8) {
          const uint4 eight = *reinterpret_cast<const uint4*>(at + d);
          const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
          float q[2][8];
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            *reinterpret_cast<float4*>(&q[r][0]) = *reinterpret_cast<const float4*>(&query[pair + r][d]);
            *reinterpret_cast<float4*>(&q[r][4]) = *reinterpret_cast<const float4*>(&query[pair + r][d + 4]);
          }
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const float number = number_of<kBF16>(words[i / 2], i % 2);
#pragma unroll
            for (int r = 0; r < 2; ++r) scores[r] = __fmaf_rn(number, q[r][i], scores[r]);
          }
        }
        weights[pair][key] = scores[0];
        weights[pair + 1][key] = scores[1];
      }
      __syncthreads();
      const int next = __shfl_sync(~0u, one, 0) / kKeys;
      if (tile + 1 < stop) fetch(keys, next, p.key_words);
      commit();
      if (from < to) {
        const bool has_one = lane >= from && lane < to, has_two = lane + 32 >= from && lane + 32 < to;
        const float first = weights[warp][lane], second = weights[warp][lane + 32];
        float most = top;
        if (has_one) most = fmaxf(most, first);
        if (has_two) most = fmaxf(most, second);
#pragma unroll
        for (int far = 16; far > 0; far /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, far));
        weights[warp][lane] = has_one ? weight_of(__fsub_rn(first, most)) : 0.0f;
        weights[warp][lane + 32] = has_two ? weight_of(__fsub_rn(second, most)) : 0.0f;
        __syncwarp();
        float part = 0.0f;
        if (lane < 4) {
          float four[16];
#pragma unroll
          for (int j = 0; j < 16; ++j) four[j] = weights[warp][min(from + lane + 4 * j, kKeys - 1)];
#pragma unroll
          for (int j = 0; j < 16; ++j)
            if (from + lane + 4 * j < to) part = __fadd_rn(part, four[j]);
        }
        const float a = __shfl_sync(~0u, part, 0), b = __shfl_sync(~0u, part, 1), c = __shfl_sync(~0u, part, 2),
                    d = __shfl_sync(~0u, part, 3);
        const float factor = weight_of(__fsub_rn(top, most));
        top = most;
        sum = __fmaf_rn(sum, factor, __fadd_rn(__fadd_rn(a, c), __fadd_rn(b, d)));
        if (lane == 0) factors[warp] = factor;
      }
      wait<1>();
      __syncthreads();
      if (thread < dim) {
        bool whole = true;
#pragma unroll
        for (int r = 0; r < kRows; ++r) whole = whole && (begins[r] == ends[r] || (begins[r] == 0 && ends[r] == count));
        float now[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) now[r] = __fmul_rn(mixed[r], begins[r] < ends[r] ? factors[r] : 1.0f);
        const auto value_at = [&](int j) {
          const std::uint32_t bits = values[places[j] * kStride + thread];
          return kBF16 ? __uint_as_float(bits << 16) : widen(bits);
        };
        int j = 0;
        if (whole) {
          for (; j + 4 <= count; j += 4) {
            float4 some[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) some[r] = *reinterpret_cast<const float4*>(&weights[r][j]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float value = value_at(j + i);
#pragma unroll
              for (int r = 0; r < kRows; ++r)
                now[r] = __fmaf_rn(value, i == 0 ? some[r].x : i == 1 ? some[r].y : i == 2 ? some[r].z : some[r].w, now[r]);
            }
          }
        }
        for (; j < count; ++j) {
          const float value = value_at(j);
#pragma unroll
          for (int r = 0; r < kRows; ++r)
            if (j >= begins[r] && j < ends[r]) now[r] = __fmaf_rn(value, weights[r][j], now[r]);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (begins[r] < ends[r]) mixed[r] = now[r];
      }
      __syncthreads();
      if (tile + 1 < stop) fetch(values, next, p.value_words);
      commit();
    }
    wait<0>();
    __syncthreads();
  }
  if (lane == 0) inverses[warp] = sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, sum);
  __syncthreads();
  const auto place = [&](int r) { return (static_cast<std::size_t>(row + r) * p.heads + head) * dim; };
  if (thread < dim)
    for (int r = 0; r < rows; ++r)
      p.result[place(r) + thread] = query[r][thread] = __fmul_rn(mixed[r], inverses[r]);
  if (p.codes.values == nullptr) return;
  __syncthreads();
  const int r = thread / (dim / 4), i = thread % (dim / 4) * 4;
  const bool inside = r < rows;
  quantize(*reinterpret_cast<const float4*>(&query[inside ? r : 0][i]), p.exact, p.codes, (place(r) + i) / 32, inside);
}

extern "C" __global__ void __launch_bounds__(kThreads) attention_f16(const __grid_constant__ AttentionPush p) { attention<false>(p); }
extern "C" __global__ void __launch_bounds__(kThreads) attention_bf16(const __grid_constant__ AttentionPush p) { attention<true>(p); }
