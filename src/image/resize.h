#pragma once

#include <cstdint>

#include "image/image.h"

namespace dllm {

/// Resizes with a bicubic kernel (a = -0.5), widened by the reduction where the image becomes smaller, as torchvision's
/// resize(antialias=True) does with bytes: columns first, then rows, each with weights of 16 bits and a sum that is
/// rounded to a byte. `width`, `height` >= 1.
RgbImage resize_bicubic(const RgbImage& image, std::int32_t width, std::int32_t height);

}  // namespace dllm
