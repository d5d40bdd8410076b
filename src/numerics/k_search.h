#pragma once

#include <bit>
#include <cstdint>

/// Choice of scales for the K formats: for each sub-block the grid that minimises a weighted error. As in GGML:
/// try a fixed list of grids, round the elements to each, refit the grid by least squares to those levels, and keep the
/// best. Sums run in element order, so the result equals GGML's bit for bit.
namespace dllm {

inline constexpr int kSuperBlock = 256;

/// x ~ scale * level - min, level in 0..top, min >= 0.
struct AffineFit {
  float scale = 0.0f;
  float min = 0.0f;
  /// The levels that the fit was made for: round((x - origin) * inverse), clamped.
  float inverse = 0.0f;
  float origin = 0.0f;
};

/// Candidate k in 0..steps stretches the range of x, from the best minimum so far, over top + first + step * k levels.
struct AffineCandidates {
  int top;
  float first;
  float step;
  int steps;
};

/// Eight sub-blocks of 32 elements, weighted with rms(x) + |x|, or with `weights` if that is not null.
void fit_affine(const float* x, const AffineCandidates& candidates, AffineFit fits[8], const float* weights = nullptr);

/// Sixteen sub-blocks of 16 elements, weighted with |x|, and the error is weighted magnitudes instead of squares; with
/// `weights`, squares.
void fit_affine_16(const float* x, const AffineCandidates& candidates, AffineFit fits[16],
                   const float* weights = nullptr);

/// What GGML tries where weights are given.
constexpr AffineCandidates weighted_candidates(int top) {
  return {.top = top, .first = -0.9f, .step = 0.05f, .steps = 36};
}

/// Below this magnitude GGML takes a group of elements for zeros.
inline constexpr float kZeroBelow = 1e-15f;

/// x ~ scale * level, level in -bottom..bottom - 1.
struct SymmetricFit {
  float scale = 0.0f;
  float inverse = 0.0f;  ///< the fit's levels are round(x * inverse), clamped; 0 for a sub-block of zeros
};

/// Sixteen sub-blocks of 16 elements, weighted with x^2, or with `weights` if that is not null.
void fit_symmetric(const float* x, SymmetricFit fits[16], int bottom = 32, const float* weights = nullptr);
/// One block of `count` <= 32 elements with weights.
SymmetricFit fit_symmetric_block(const float* x, int count, int bottom, const float* weights);
/// One block of 32 elements with weights, with weighted_candidates(top).
AffineFit fit_affine_block(const float* x, int top, const float* weights);

/// x ~ scale * levels[i], for `count` <= 16 numbers of at least zero, levels in 0..top; returns the scale. The best of
/// nine grids, whose levels are then changed one by one, up to five times, as long as that lessens the weighted error.
float fit_positive(const float* x, int count, int top, const float* weights, std::uint8_t* levels);

/// Nearest integer, ties to even, of a magnitude below 2^22. What comes out for a larger one is arbitrary, but the same
/// as in GGML, where it may decide about a level.
inline int nearest_small(float value) {
  return static_cast<int>(std::bit_cast<std::uint32_t>(value + 12582912.0f) & 0x7fffffu) - 0x400000;
}

/// Clamps to [low, high] and rounds to the nearest integer, ties to even; NaN gives `low`.
inline int nearest_level(float value, int low, int high) {
  const float bottom = static_cast<float>(low), top = static_cast<float>(high);
  const float clamped = value > bottom ? (value < top ? value : top) : bottom;
  return static_cast<int>((clamped + 0x1.8p23f) - 0x1.8p23f);  // adding 1.5 * 2^23 leaves no fraction bits
}

/// The fit's level of x, in 0..top.
inline int level_of(const AffineFit& fit, float x, int top) {
  return nearest_level((x - fit.origin) * fit.inverse, 0, top);
}
/// The fit's level of x plus `bottom`, in 0..2 bottom - 1; 0 for a sub-block of zeros.
inline int level_of(const SymmetricFit& fit, float x, int bottom) {
  return fit.inverse != 0.0f ? nearest_level(x * fit.inverse, -bottom, bottom - 1) + bottom : 0;
}

}  // namespace dllm
