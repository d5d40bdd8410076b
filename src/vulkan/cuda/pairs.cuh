// Which rows of x a block multiplies with which matrix: as shaders/experts.glsl, except that a block takes all pairs of an
// expert, so that its matrix is read once for them.
#pragma once
#include <cstdint>

namespace {

template <int kRows>
struct Rows {
  std::uint32_t source[kRows], target[kRows];  // of x and of the result; those beyond the last repeat it in `source`
  int found, next;
};

// Rows [first, first + kRows) of a product with one matrix; how many there are. All threads of the block call it.
template <int kRows>
__device__ inline int take_rows(Rows<kRows>& to, int first, int count) {
  const int found = min(count - first, kRows);
  if (found <= 0) return 0;
  for (int i = threadIdx.x; i < kRows; i += blockDim.x) to.source[i] = to.target[i] = first + min(i, found - 1);
  __syncthreads();
  return found;
}

// The next pairs of an expert from pair `begin` on, which is moved behind them; how many there are. `route` is [rows][2
// used], an expert's number in each of the first `used`.
template <int kRows>
__device__ inline int take_pairs(Rows<kRows>& to, int expert, int& begin, int pairs, const float* route, int used, bool shared_rows) {
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int found = 0, at = begin;
    while (at < pairs && found < kRows) {
      const int i = at + lane;
      const bool mine = i < pairs && static_cast<int>(route[i / used * 2 * used + i % used]) == expert;
      const unsigned all = __ballot_sync(~0u, mine);
      const int place = found + __popc(all & ((1u << lane) - 1));
      if (mine && place < kRows) {
        to.target[place] = i;
        to.source[place] = shared_rows ? i / used : i;
      }
      const unsigned over = __ballot_sync(~0u, mine && place == kRows);
      found += __popc(all);
      at += over != 0 ? __ffs(over) - 1 : 32;
    }
    if (lane == 0) to.found = min(found, kRows), to.next = at;
  }
  __syncthreads();
  const int found = to.found;
  begin = to.next;
  if (found > 0)
    for (int i = found + threadIdx.x; i < kRows; i += blockDim.x) to.source[i] = to.source[found - 1];
  __syncthreads();
  return found;
}

}  // namespace
