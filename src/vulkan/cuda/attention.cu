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

constexpr int kRows = 4, kThreads = 256, kKeys = 64, kMostDim = 128, kStride = kMostDim + 8;
// kStride: from a row of halves to the next; its padding of 16 bytes avoids bank conflicts in shared memory.
constexpr int kHalfRows = kRows / 2;  // that a thread computes an output of

template <bool kBF16>
__device__ inline float number_of(std::uint32_t word, int index) {
  if (kBF16) return __uint_as_float(index == 0 ? word << 16 : word & 0xffff0000u);
  return widen(index == 0 ? word & 0xffffu : word >> 16);
}

// A block computes a head of four rows. Where weights are made a warp is a row; for scores a thread is a key of a row, and
// for outputs a dimension of two. Rows of one sequence share what is read of its cache.
template <bool kBF16>
__device__ inline void attention(const AttentionPush& p) {
  alignas(16) __shared__ unsigned short keys[kKeys * kStride];
  alignas(16) __shared__ unsigned short values[kKeys * kStride];
  alignas(16) __shared__ float query[kRows][kMostDim];
  alignas(16) __shared__ float weights[kRows][kKeys];
  __shared__ float factors[kRows], inverses[kRows];
  __shared__ int places[kKeys], begins[kRows], ends[kRows];
  __shared__ PlanRow plans[kRows];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int head = blockIdx.x, row = blockIdx.y * kRows, dim = p.head_dim;
  const int rows = min(*p.count - row, kRows);
  if (rows <= 0) return;
  const int kv_head = head / static_cast<int>(p.heads / p.kv_heads);
  if (thread < rows) plans[thread] = p.rows[row + thread];
  for (int i = thread; i < kRows * kMostDim; i += kThreads) {
    const int r = i / kMostDim, d = i % kMostDim;
    if (r < rows && d < dim)
      query[r][d] = __fmul_rn(p.query[(static_cast<std::size_t>(row + r) * p.heads + head) * dim + d], p.scale);
  }
  __syncthreads();

  const int own_dim = thread % kMostDim, first_row = thread / kMostDim * kHalfRows;
  float mixed[kHalfRows] = {}, top = -1e30f, sum = 0.0f;  // the last two: of the warp's row
  for (int leader = 0, last = 0; leader < rows; leader = last) {
    const PlanRow plan = plans[leader];
    last = leader + 1;
    while (last < rows && plans[last].cache == plan.cache && plans[last].first_tile == plan.first_tile &&
           plans[last].tile_count == plan.tile_count)
      ++last;
    const bool mine = warp >= leader && warp < last;  // of the first warps: those of rows
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
      if (lane == 0 && warp < kRows) begins[warp] = from, ends[warp] = to;
      if (warp == 0) places[lane] = one % kKeys, places[lane + 32] = two % kKeys;
      begin = end;
      end = p.tiles[min(tile + 2, stop)];
      one = position(begin + lane);
      two = position(begin + lane + 32);
      wait<1>();
      __syncthreads();
      const int key = thread % kKeys, of_row = thread / kKeys;
      if (key < count && begins[of_row] <= key && key < ends[of_row]) {
        float score = 0.0f;
        const unsigned short* const at = keys + places[key] * kStride;
        const auto eight_of = [&](int d) {
          const uint4 eight = *reinterpret_cast<const uint4*>(at + d);
          const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
          const float4 first = *reinterpret_cast<const float4*>(&query[of_row][d]),
                       second = *reinterpret_cast<const float4*>(&query[of_row][d + 4]);
          const float q[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
          for (int i = 0; i < 8; ++i) score = __fmaf_rn(number_of<kBF16>(words[i / 2], i % 2), q[i], score);
        };
        if (dim == kMostDim) {
#pragma unroll 8
          for (int d = 0; d < kMostDim; d += 8) eight_of(d);
        } else {
          for (int d = 0; d < dim; d += 8) eight_of(d);
        }
        weights[of_row][key] = score;
      }
      __syncthreads();
      const int next = __shfl_sync(~0u, one, 0) / kKeys;
      if (tile + 1 < stop) fetch(keys, next, p.key_words);
      commit();
      if (warp < kRows && from < to) {
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
      if (own_dim < dim) {
        float now[kHalfRows];
        bool whole = true;
#pragma unroll
        for (int r = 0; r < kHalfRows; ++r) {
          const int of = first_row + r;
          whole = whole && (begins[of] == ends[of] || (begins[of] == 0 && ends[of] == kKeys));
          now[r] = begins[of] < ends[of] ? __fmul_rn(mixed[r], factors[of]) : 0.0f;
        }
        const auto value_at = [&](int place) {
          const std::uint32_t bits = values[place * kStride + own_dim];
          return kBF16 ? __uint_as_float(bits << 16) : widen(bits);
        };
        if (whole) {  // every position of the tile, so each is at its place
#pragma unroll 4
          for (int j = 0; j < kKeys; j += 4) {
            float4 some[kHalfRows];
#pragma unroll
            for (int r = 0; r < kHalfRows; ++r) some[r] = *reinterpret_cast<const float4*>(&weights[first_row + r][j]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float value = value_at(j + i);
#pragma unroll
              for (int r = 0; r < kHalfRows; ++r)
                now[r] = __fmaf_rn(value, i == 0 ? some[r].x : i == 1 ? some[r].y : i == 2 ? some[r].z : some[r].w, now[r]);
            }
          }
        } else {
          for (int j = 0; j < count; ++j) {
            const float value = value_at(places[j]);
#pragma unroll
            for (int r = 0; r < kHalfRows; ++r)
              if (j >= begins[first_row + r] && j < ends[first_row + r])
                now[r] = __fmaf_rn(value, weights[first_row + r][j], now[r]);
          }
        }
#pragma unroll
        for (int r = 0; r < kHalfRows; ++r)
          if (begins[first_row + r] < ends[first_row + r]) mixed[r] = now[r];
      }
      __syncthreads();
      if (tile + 1 < stop) fetch(values, next, p.value_words);
      commit();
    }
    wait<0>();
    __syncthreads();
  }
  if (lane == 0 && warp < kRows) inverses[warp] = sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, sum);
  __syncthreads();
  const auto place = [&](int r) { return (static_cast<std::size_t>(row + r) * p.heads + head) * dim; };
#pragma unroll
  for (int r = 0; r < kHalfRows; ++r)
    if (own_dim < dim && first_row + r < rows)
      p.result[place(first_row + r) + own_dim] = query[first_row + r][own_dim] =
          __fmul_rn(mixed[r], inverses[first_row + r]);
  if (p.codes.values == nullptr) return;
  __syncthreads();
  const int r = thread / (dim / 4), i = thread % (dim / 4) * 4;
  const bool inside = r < rows;
  quantize(*reinterpret_cast<const float4*>(&query[inside ? r : 0][i]), p.exact, p.codes, (place(r) + i) / 32, inside);
}

DLLM_KERNEL void __launch_bounds__(kThreads) attention_f16(const __grid_constant__ AttentionPush p) { attention<false>(p); }
DLLM_KERNEL void __launch_bounds__(kThreads) attention_bf16(const __grid_constant__ AttentionPush p) { attention<true>(p); }
