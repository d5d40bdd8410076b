#include "numerics/k_search.h"

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

constexpr int kAffineWidth = 32;

/// What all candidates of four sub-blocks share.
struct AffineProblem {
  Lanes x[kAffineWidth];
  Lanes weight[kAffineWidth];
  Lanes sum_w, sum_wx;
  Lanes low, high;  ///< range of x, extended below to include 0
};

AffineProblem pose_affine(const float* x) {
  AffineProblem p;
  transpose<kAffineWidth>(x, p.x);
  Lanes square = splat(0.0f);
  for (const Lanes& v : p.x) square += v * v;
  Lanes rms = square / float{kAffineWidth};
  for (int lane = 0; lane < kLanes; ++lane) rms[lane] = std::sqrt(rms[lane]);
  p.low = p.high = p.x[0];
  p.sum_w = p.sum_wx = splat(0.0f);
  for (int i = 0; i < kAffineWidth; ++i) {
    p.weight[i] = rms + absolute(p.x[i]);
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

void measure(const AffineProblem& p, float top, AffineGrid& grid) {
  grid.error = splat(0.0f);
  for (int i = 0; i < kAffineWidth; ++i) {
    const Lanes level = round_clamped(grid.inverse * (p.x[i] - grid.origin), 0.0f, top);
    const Lanes difference = grid.scale * level + grid.min - p.x[i];
    grid.error += p.weight[i] * (difference * difference);
  }
}

/// Rounds to the grid (inverse, origin), then fits scale and min to the levels by the normal equations of weighted
/// linear regression. A positive minimum cannot be stored: the line then goes through 0. Lanes in which all levels are
/// equal have no unique line; their error is set to infinity.
void refit(const AffineProblem& p, float top, AffineGrid& grid) {
  Lanes sum_l = splat(0.0f), sum_ll = sum_l, sum_lx = sum_l;
  for (int i = 0; i < kAffineWidth; ++i) {
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
  measure(p, top, grid);
  grid.error = determinant > 0.0f ? grid.error : splat(INFINITY);
}

void fit_affine_lanes(const float* x, const AffineCandidates& candidates, AffineFit* fits) {
  const AffineProblem p = pose_affine(x);
  const float top = static_cast<float>(candidates.top);
  AffineGrid best;
  best.inverse = top / (p.high - p.low);
  best.origin = best.min = p.low;
  best.scale = 1.0f / best.inverse;
  measure(p, top, best);
  for (int k = 0; k <= candidates.steps; ++k) {
    AffineGrid grid;
    // Like GGML, each candidate starts from the minimum of the best grid so far, not from the minimum of the data.
    grid.origin = best.min;
    grid.inverse = (candidates.first + candidates.step * static_cast<float>(k) + top) / (p.high - best.min);
    refit(p, top, grid);
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

constexpr int kSymmetricWidth = 16;
constexpr float kSymmetricBottom = -32.0f, kSymmetricTop = 31.0f;
constexpr float kZeroBelow = 1e-15f;  // GGML's threshold for a group of zeros

struct SymmetricGrid {
  Lanes sum_lx, sum_ll;  ///< of weight * level * x and weight * level^2
};

SymmetricGrid try_symmetric(const Lanes* x, Lanes inverse) {
  SymmetricGrid grid{splat(0.0f), splat(0.0f)};
  for (int i = 0; i < kSymmetricWidth; ++i) {
    const Lanes level = round_clamped(inverse * x[i], kSymmetricBottom, kSymmetricTop);
    const Lanes weight = x[i] * x[i];
    grid.sum_lx += weight * x[i] * level;
    grid.sum_ll += weight * level * level;
  }
  return grid;
}

void fit_symmetric_lanes(const float* source, SymmetricFit* fits) {
  Lanes x[kSymmetricWidth];
  transpose<kSymmetricWidth>(source, x);
  Lanes magnitude = splat(0.0f), extreme = splat(0.0f);
  for (const Lanes& v : x) {
    const auto larger = absolute(v) > magnitude;
    magnitude = larger ? absolute(v) : magnitude;
    extreme = larger ? v : extreme;
  }
  // For given levels the best scale is sum_lx / sum_ll and removes sum_lx^2 / sum_ll of the weighted error, so the
  // candidate with the largest such term wins. Cross-multiplication avoids the division.
  Lanes inverse = kSymmetricBottom / extreme;
  const SymmetricGrid first = try_symmetric(x, inverse);
  Lanes scale = first.sum_ll != 0.0f ? first.sum_lx / first.sum_ll : splat(0.0f);
  Lanes gain = scale * first.sum_lx;
  for (int k = -9; k <= 9; ++k) {
    if (k == 0) continue;  // the first one
    const Lanes candidate = (kSymmetricBottom - 0.1f * static_cast<float>(k)) / extreme;
    const SymmetricGrid grid = try_symmetric(x, candidate);
    const auto better = (grid.sum_ll > 0.0f) & (grid.sum_lx * grid.sum_lx > gain * grid.sum_ll);
    scale = better ? grid.sum_lx / grid.sum_ll : scale;
    gain = better ? scale * grid.sum_lx : gain;
    inverse = better ? candidate : inverse;
  }
  for (int lane = 0; lane < kLanes; ++lane)
    fits[lane] = magnitude[lane] < kZeroBelow ? SymmetricFit{} : SymmetricFit{scale[lane], inverse[lane]};
}

}  // namespace

void fit_affine(const float* x, const AffineCandidates& candidates, AffineFit fits[8]) {
  for (int j = 0; j < 8; j += kLanes) fit_affine_lanes(x + j * kAffineWidth, candidates, fits + j);
}

void fit_symmetric(const float* x, SymmetricFit fits[16]) {
  for (int j = 0; j < 16; j += kLanes) fit_symmetric_lanes(x + j * kSymmetricWidth, fits + j);
}

}  // namespace dllm
