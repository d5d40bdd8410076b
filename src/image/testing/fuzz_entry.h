#pragma once

#include <string_view>

#include "image/image.h"
#include "image/resize.h"

namespace dllm {

/// The body of the fuzz target: a file either decodes, and can then be resized, or gives a reason. A violation ends the
/// process, which is how a fuzzer detects it.
inline void fuzz_image(std::string_view file) {
  const auto image = decode_image(file, "input");
  if (!image) {
    if (image.error().what.empty()) __builtin_trap();
    return;
  }
  if (image->pixels.size() !=
      std::size_t{3} * static_cast<std::size_t>(image->width) * static_cast<std::size_t>(image->height))
    __builtin_trap();
  const RgbImage small = resize_bicubic(*image, 16, 16);
  if (small.pixels.size() != std::size_t{3} * 16 * 16) __builtin_trap();
}

}  // namespace dllm
