#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// Rows of red, green and blue, eight bits each, from the top left.
struct RgbImage {
  std::int32_t width = 0, height = 0;
  std::vector<std::uint8_t> pixels;  ///< [height][width][3]

  friend bool operator==(const RgbImage&, const RgbImage&) = default;
};

/// What is read of a file from outside: more is refused before memory is asked for.
inline constexpr std::size_t kMostImageBytes = std::size_t{32} << 20;
inline constexpr std::int64_t kMostImagePixels = 64'000'000;
inline constexpr std::int32_t kMostImageSide = 30'000;

/// Decodes a PNG, JPEG or WebP file as Pillow's convert("RGB") after exif_transpose() does: alpha is dropped, grey and
/// palettes become colours, samples of 16 bits lose their low byte, and an EXIF orientation is applied. `name` stands
/// for the file in messages. Errors: kInvalidFile (damaged, cut off, beyond the limits above), kUnsupported (another
/// format, an animation, CMYK, or a format whose library this build lacks).
Expected<RgbImage> decode_image(std::string_view file, const std::string& name);

/// Whether this build decodes a format: "PNG", "JPEG" or "WebP".
bool decodes_image(std::string_view format);

}  // namespace dllm
