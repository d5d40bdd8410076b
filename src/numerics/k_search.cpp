#include "numerics/k_search.h"

#include <algorithm>
#include <cmath>

namespace dllm {
namespace {

// Four sub-blocks at once, one per lane: each lane adds its own elements in order, so the result equals the plain
// loop's and the vector unit is full. The vector type is the compilers' own (GCC and Clang), 16 bytes wide because
// every x86-64 and AArch64 has that.
using Lanes = float __attribute__((vector_size(16)));
constexpr int kLanes = 4;

Lanes splat(float value) { return Lanes{value, value, value, value}; }
Lanes absolute(Lanes v) { return v < 0.0f ? -v : v; }

Lanes round_clamped(Lanes v, float low, float high) {
  v = v > low ? v : splat(low);
  v = v < high ? v : splat(high);
  return (v + 0x1.8p23f) - 0x1.8p23f;
}

template <int width>
void transpose(const float* x, Lanes out[width]) {
  for (int i = 0; i < width; ++i) out[i] = Lanes{x[i], x[width + i], x[2 * width + i], x[3 * width + i]};
}

/// As in GGML, sub-blocks of 32 (Q4_K, Q5_K) are weighted with rms(x) + |x| and measured by squares, those of 16 (Q2_K)
/// with |x| and by magnitudes. Where weights are given, all are measured by squares.
constexpr bool by_squares(int width, bool weighted) { return width == 32 || weighted; }

/// What all candidates of four sub-blocks share.
template <int kWidth>
struct AffineProblem {
  Lanes x[kWidth];
  Lanes weight[kWidth];
  Lanes sum_w, sum_wx;
  Lanes low, high;  ///< range of x, extended below to include 0
};

template <int kWidth>
void own_weights(AffineProblem<kWidth>& p) {
  Lanes rms = splat(0.0f);
  if constexpr (by_squares(kWidth, false)) {
    for (const Lanes& v : p.x) rms += v * v;
    rms = rms / float{kWidth};
    for (int lane = 0; lane < kLanes; ++lane) rms[lane] = std::sqrt(rms[lane]);
  }
  for (int i = 0; i < kWidth; ++i) p.weight[i] = rms + absolute(p.x[i]);
}

template <int kWidth, bool kWeighted>
AffineProblem<kWidth> pose_affine(const float* x, const float* weights) {
  AffineProblem<kWidth> p;
  transpose<kWidth>(x, p.x);
  if constexpr (kWeighted)
    transpose<kWidth>(weights, p.weight);
  else
    own_weights(p);
  p.low = p.high = p.x[0];
  p.sum_w = p.sum_wx = splat(0.0f);
  for (int i = 0; i < kWidth; ++i) {
    p.low = p.x[i] < p.low ? p.x[i] : p.low;
    p.high = p.x[i] > p.high ? p.x[i] : p.high;
    p.sum_w += p.weight[i];
    p.sum_wx += p.weight[i] * p.x[i];
  }
  p.low = p.low > 0.0f ? splat(0.0f) : p.low;
  return p;
}

struct AffineGrid {
  Lanes scale, min, inverse, origin, error;
};

template <int kWidth, bool kWeighted>
void measure(const AffineProblem<kWidth>& p, float top, AffineGrid& grid) {
  grid.error = splat(0.0f);
  for (int i = 0; i < kWidth; ++i) {
    const Lanes level = round_clamped(grid.inverse * (p.x[i] - grid.origin), 0.0f, top);
    const Lanes difference = grid.scale * level + grid.min - p.x[i];
    grid.error += p.weight[i] * (by_squares(kWidth, kWeighted) ? difference * difference : absolute(difference));
  }
}

/// Rounds to the grid (inverse, origin), then fits scale and min to the levels by the normal equations of weighted
/// linear regression. A positive minimum cannot be stored: the line then goes through 0. Lanes in which all levels are
/// equal have no unique line; their error is set to infinity.
template <int kWidth, bool kWeighted>
void refit(const AffineProblem<kWidth>& p, float top, AffineGrid& grid) {
  Lanes sum_l = splat(0.0f), sum_ll = sum_l, sum_lx = sum_l;
  for (int i = 0; i < kWidth; ++i) {
    const Lanes level = round_clamped(grid.inverse * (p.x[i] - grid.origin), 0.0f, top);
    const Lanes weighted = p.weight[i] * level;
    sum_l += weighted;
    sum_ll += weighted * level;
    sum_lx += weighted * p.x[i];
  }
  const Lanes determinant = p.sum_w * sum_ll - sum_l * sum_l;
  grid.scale = (p.sum_w * sum_lx - p.sum_wx * sum_l) / determinant;
  grid.min = (sum_ll * p.sum_wx - sum_l * sum_lx) / determinant;
  const auto through_zero = grid.min > 0.0f;
  grid.scale = through_zero ? sum_lx / sum_ll : grid.scale;
  grid.min = through_zero ? splat(0.0f) : grid.min;
  measure<kWidth, kWeighted>(p, top, grid);
  grid.error = determinant > 0.0f ? grid.error : splat(INFINITY);
}

template <int kWidth, bool kWeighted>
void fit_affine_lanes(const float* x, const float* weights, const AffineCandidates& candidates, AffineFit* fits) {
  const AffineProblem<kWidth> p = pose_affine<kWidth, kWeighted>(x, weights);
  const float top = static_cast<float>(candidates.top);
  AffineGrid best;
  best.inverse = top / (p.high - p.low);
  best.origin = best.min = p.low;
  best.scale = 1.0f / best.inverse;
  measure<kWidth, kWeighted>(p, top, best);
  for (int k = 0; k <= candidates.steps; ++k) {
    AffineGrid grid;
    // Like GGML, each candidate starts from the minimum of the best grid so far, not from the minimum of the data.
    grid.origin = best.min;
    grid.inverse = (candidates.first + candidates.step * static_cast<float>(k) + top) / (p.high - best.min);
    refit<kWidth, kWeighted>(p, top, grid);
    const auto better = grid.error < best.error;
    best.scale = better ? grid.scale : best.scale;
    best.min = better ? grid.min : best.min;
    best.inverse = better ? grid.inverse : best.inverse;
    best.origin = better ? grid.origin : best.origin;
    best.error = better ? grid.error : best.error;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool flat = p.high[lane] == p.low[lane];
    fits[lane] = flat ? AffineFit{0.0f, -p.low[lane], 0.0f, 0.0f}
                      : AffineFit{best.scale[lane], -best.min[lane], best.inverse[lane], best.origin[lane]};
  }
}

/// Four sub-blocks; weights are x^2 unless they are given.
template <int kWidth>
struct SymmetricProblem {
  Lanes x[kWidth];
  Lanes weight[kWidth];
  float bottom;
};

struct SymmetricGrid {
  Lanes sum_lx, sum_ll;  ///< of weight * level * x and weight * level^2
};

template <int kWidth>
SymmetricGrid try_symmetric(const SymmetricProblem<kWidth>& p, Lanes inverse) {
  SymmetricGrid grid{splat(0.0f), splat(0.0f)};
  for (int i = 0; i < kWidth; ++i) {
    const Lanes level = round_clamped(inverse * p.x[i], -p.bottom, p.bottom - 1.0f);
    grid.sum_lx += p.weight[i] * p.x[i] * level;
    grid.sum_ll += p.weight[i] * level * level;
  }
  return grid;
}

template <int kWidth>
void fit_symmetric_lanes(const float* source, const float* weights, int bottom, SymmetricFit* fits) {
  SymmetricProblem<kWidth> p;
  p.bottom = static_cast<float>(bottom);
  transpose<kWidth>(source, p.x);
  if (weights != nullptr)
    transpose<kWidth>(weights, p.weight);
  else
    for (int i = 0; i < kWidth; ++i) p.weight[i] = p.x[i] * p.x[i];
  Lanes magnitude = splat(0.0f), extreme = splat(0.0f);
  for (const Lanes& v : p.x) {
    const auto larger = absolute(v) > magnitude;
    magnitude = larger ? absolute(v) : magnitude;
    extreme = larger ? v : extreme;
  }
  // For given levels the best scale is sum_lx / sum_ll and removes sum_lx^2 / sum_ll of the weighted error, so the
  // candidate with the largest such term wins. Cross-multiplication avoids the division.
  Lanes inverse = -p.bottom / extreme;
  const SymmetricGrid first = try_symmetric(p, inverse);
  Lanes scale = first.sum_ll != 0.0f ? first.sum_lx / first.sum_ll : splat(0.0f);
  Lanes gain = scale * first.sum_lx;
  for (int k = -9; k <= 9; ++k) {
    if (k == 0) continue;  // the first one
    const Lanes candidate = -(p.bottom + 0.1f * static_cast<float>(k)) / extreme;
    const SymmetricGrid grid = try_symmetric(p, candidate);
    const auto better = (grid.sum_ll > 0.0f) & (grid.sum_lx * grid.sum_lx > gain * grid.sum_ll);
    scale = better ? grid.sum_lx / grid.sum_ll : scale;
    gain = better ? scale * grid.sum_lx : gain;
    inverse = better ? candidate : inverse;
  }
  for (int lane = 0; lane < kLanes; ++lane)
    fits[lane] = magnitude[lane] < kZeroBelow ? SymmetricFit{} : SymmetricFit{scale[lane], inverse[lane]};
}

/// `count` numbers in the first of four sub-blocks of kWidth, and zeros elsewhere, which no sum mixes with them.
template <int kWidth>
void first_lane(const float* x, int count, float* out) {
  std::fill_n(out, kLanes * kWidth, 0.0f);
  std::copy_n(x, count, out);
}

}  // namespace

void fit_affine(const float* x, const AffineCandidates& candidates, AffineFit fits[8], const float* weights) {
  for (int j = 0; j < 8; j += kLanes)
    if (weights != nullptr)
      fit_affine_lanes<32, true>(x + 32 * j, weights + 32 * j, candidates, fits + j);
    else
      fit_affine_lanes<32, false>(x + 32 * j, nullptr, candidates, fits + j);
}

void fit_affine_16(const float* x, const AffineCandidates& candidates, AffineFit fits[16], const float* weights) {
  for (int j = 0; j < 16; j += kLanes)
    if (weights != nullptr)
      fit_affine_lanes<16, true>(x + 16 * j, weights + 16 * j, candidates, fits + j);
    else
      fit_affine_lanes<16, false>(x + 16 * j, nullptr, candidates, fits + j);
}

void fit_symmetric(const float* x, SymmetricFit fits[16], int bottom, const float* weights) {
  for (int j = 0; j < 16; j += kLanes)
    fit_symmetric_lanes<16>(x + 16 * j, weights == nullptr ? nullptr : weights + 16 * j, bottom, fits + j);
}

SymmetricFit fit_symmetric_block(const float* x, int count, int bottom, const float* weights) {
  float values[kLanes * 32], weighted[kLanes * 32];
  first_lane<32>(x, count, values);
  first_lane<32>(weights, count, weighted);
  SymmetricFit fits[kLanes];
  fit_symmetric_lanes<32>(values, weighted, bottom, fits);
  return fits[0];
}

AffineFit fit_affine_block(const float* x, int top, const float* weights) {
  float values[kLanes * 32], weighted[kLanes * 32];
  first_lane<32>(x, 32, values);
  first_lane<32>(weights, 32, weighted);
  AffineFit fits[kLanes];
  fit_affine_lanes<32, true>(values, weighted, weighted_candidates(top), fits);
  return fits[0];
}

float fit_positive(const float* x, int count, int top, const float* weights, std::uint8_t* levels) {
  std::fill_n(levels, count, std::uint8_t{0});
  float max = 0.0f;
  for (int i = 0; i < count; ++i) max = std::max(max, x[i]);
  if (!(max >= kZeroBelow)) return 0.0f;
  const auto rounded = [&](float value) { return std::min(nearest_small(value), top); };
  float inverse = static_cast<float>(top) / max, least = 0.0f;
  for (int k = -4; k <= 4; ++k) {
    const int step = k == -4 ? 0 : k <= 0 ? k - 1 : k;  // first 0, then -4 to 4 without it
    const float candidate = (0.1f * static_cast<float>(step) + static_cast<float>(top)) / max, scale = 1.0f / candidate;
    float error = 0.0f;
    for (int i = 0; i < count; ++i) {
      const float difference = x[i] - scale * static_cast<float>(rounded(candidate * x[i]));
      error += weights[i] * difference * difference;
    }
    if (step != 0 && !(error < least)) continue;
    least = error;
    inverse = step == 0 ? inverse : candidate;
  }
  float sum_lx = 0.0f, sum_ll = 0.0f;
  for (int i = 0; i < count; ++i) {
    levels[i] = static_cast<std::uint8_t>(rounded(inverse * x[i]));
    const float level = static_cast<float>(levels[i]);
    sum_lx += weights[i] * x[i] * level;
    sum_ll += weights[i] * level * level;
  }
  for (int round = 0; round < 5; ++round) {
    bool changed = false;
    for (int i = 0; i < count; ++i) {
      const float level = static_cast<float>(levels[i]);
      float lx = sum_lx - weights[i] * x[i] * level, ll = sum_ll - weights[i] * level * level;
      if (!(lx > 0.0f && ll > 0.0f)) continue;
      const int other = rounded(x[i] * ll / lx);
      if (other == levels[i]) continue;
      const float candidate = static_cast<float>(other);
      lx += weights[i] * x[i] * candidate;
      ll += weights[i] * candidate * candidate;
      if (!(lx * lx * sum_ll > sum_lx * sum_lx * ll)) continue;
      levels[i] = static_cast<std::uint8_t>(other), sum_lx = lx, sum_ll = ll;
      changed = true;
    }
    if (!changed) break;
  }
  return sum_ll > 0.0f ? sum_lx / sum_ll : 0.0f;
}

}  // namespace dllm
