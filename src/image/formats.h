#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "image/image.h"

namespace dllm {

/// An image as its format stores it; `orientation`: EXIF's, 1 to 8, 1 is upright.
struct DecodedImage {
  RgbImage image;
  int orientation = 1;
};

// Errors: as decode_image(). Each has a second definition for builds without its library.
Expected<DecodedImage> decode_png(std::string_view file, const std::string& name);
Expected<DecodedImage> decode_jpeg(std::string_view file, const std::string& name);
Expected<DecodedImage> decode_webp(std::string_view file, const std::string& name);

/// Errors: kInvalidFile, if the image is empty or larger than this build reads.
Expected<void> check_image_size(std::int64_t width, std::int64_t height, const std::string& name);

Error damaged_image(const std::string& name, const std::string& what);

}  // namespace dllm
