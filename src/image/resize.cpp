#include "image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace dllm {
namespace {

/// Keys' kernel (Cubic convolution interpolation for digital image processing, 1981) with a = -0.5.
double keys_kernel(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// For each output: which inputs it sums, and their weights times 2^bits.
struct Taps {
  std::size_t most = 0;  ///< weights kept for each output
  int bits = 0;
  std::vector<std::int32_t> first, count;
  std::vector<std::int32_t> weights;  ///< [output][most]
};

Taps make_taps(std::int32_t from, std::int32_t to) {
  const double scale = static_cast<double>(from) / to, spread = std::max(scale, 1.0), support = 2 * spread;
  Taps taps;
  taps.most = 2 * static_cast<std::size_t>(std::ceil(support)) + 1;
  std::vector<double> weights(taps.most * static_cast<std::size_t>(to));
  double largest = 0;
  for (std::int32_t i = 0; i < to; ++i) {
    const double center = scale * (i + 0.5);
    const auto first = std::max(0, static_cast<std::int32_t>(center - support + 0.5));
    const auto count = std::min(from, static_cast<std::int32_t>(center + support + 0.5)) - first;
    double* const w = weights.data() + static_cast<std::size_t>(i) * taps.most;
    double sum = 0;
    for (std::int32_t j = 0; j < count; ++j) sum += w[j] = keys_kernel((j + first - center + 0.5) / spread);
    for (std::int32_t j = 0; j < count; ++j) largest = std::max(largest, w[j] /= sum);
    taps.first.push_back(first);
    taps.count.push_back(count);
  }
  // As many bits as the largest weight leaves in 16, with the sign.
  while (taps.bits < 22 && static_cast<int>(0.5 + largest * (1 << (taps.bits + 1))) < (1 << 15)) ++taps.bits;
  const double unit = 1 << taps.bits;
  for (const double w : weights)
    taps.weights.push_back(static_cast<std::int32_t>(w < 0 ? w * unit - 0.5 : w * unit + 0.5));
  return taps;
}

/// One output: taps at `step` bytes from each other, for each of the three colours.
void sum_taps(const std::uint8_t* in, std::size_t step, const std::int32_t* weights, std::int32_t count, int bits,
              std::uint8_t* out) {
  std::int32_t sums[3];
  std::fill_n(sums, 3, 1 << (bits - 1));
  for (std::int32_t j = 0; j < count; ++j, in += step)
    for (int c = 0; c < 3; ++c) sums[c] += in[c] * weights[j];
  for (int c = 0; c < 3; ++c) out[c] = static_cast<std::uint8_t>(std::clamp(sums[c] >> bits, 0, 255));
}

RgbImage resize_axis(const RgbImage& image, std::int32_t to, bool columns) {
  RgbImage out{columns ? to : image.width, columns ? image.height : to, {}};
  const Taps taps = make_taps(columns ? image.width : image.height, to);
  out.pixels.resize(static_cast<std::size_t>(out.width) * static_cast<std::size_t>(out.height) * 3);
  const std::size_t row = static_cast<std::size_t>(image.width) * 3, step = columns ? 3 : row;
  std::uint8_t* at = out.pixels.data();
  for (std::int32_t y = 0; y < out.height; ++y)
    for (std::int32_t x = 0; x < out.width; ++x, at += 3) {
      const auto i = static_cast<std::size_t>(columns ? x : y);
      const std::size_t across = columns ? static_cast<std::size_t>(y) * row : static_cast<std::size_t>(x) * 3;
      sum_taps(image.pixels.data() + across + static_cast<std::size_t>(taps.first[i]) * step, step,
               taps.weights.data() + i * taps.most, taps.count[i], taps.bits, at);
    }
  return out;
}

}  // namespace

RgbImage resize_bicubic(const RgbImage& image, std::int32_t width, std::int32_t height) {
  RgbImage out = image.width == width ? image : resize_axis(image, width, /*columns=*/true);
  return out.height == height ? out : resize_axis(out, height, /*columns=*/false);
}

}  // namespace dllm
