#pragma once

#include <cstdint>

/// Choice of scales for the K formats: for each sub-block the grid that minimises a weighted squared error. As in GGML:
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

/// Eight sub-blocks of 32 elements, weighted with rms(x) + |x|.
void fit_affine(const float* x, const AffineCandidates& candidates, AffineFit fits[8]);

/// x ~ scale * level, level in -32..31.
struct SymmetricFit {
  float scale = 0.0f;
  float inverse = 0.0f;  ///< the fit's levels are round(x * inverse), clamped; 0 for a sub-block of zeros
};

/// Sixteen sub-blocks of 16 elements, weighted with x^2.
void fit_symmetric(const float* x, SymmetricFit fits[16]);

/// Clamps to [low, high] and rounds to the nearest integer, ties to even; NaN gives `low`.
inline int nearest_level(float value, int low, int high) {
  const float bottom = static_cast<float>(low), top = static_cast<float>(high);
  const float clamped = value > bottom ? (value < top ? value : top) : bottom;
  return static_cast<int>((clamped + 0x1.8p23f) - 0x1.8p23f);  // adding 1.5 * 2^23 leaves no fraction bits
}

}  // namespace dllm
