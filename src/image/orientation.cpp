#include "image/orientation.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace dllm {
namespace {

constexpr std::uint32_t kOrientationTag = 0x0112;

/// Numbers of a TIFF block; beyond its end they are 0.
class TiffReader {
 public:
  TiffReader(std::string_view bytes, bool big) : bytes_(bytes), big_(big) {}

  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<std::uint8_t>(bytes_[big_ ? at + i : at + size - 1 - i]);
    return value;
  }

 private:
  std::string_view bytes_;
  bool big_;
};

}  // namespace

int exif_orientation(std::string_view block) {
  using namespace std::string_view_literals;
  if (block.starts_with("Exif\0\0"sv)) block.remove_prefix(6);
  const bool big = block.starts_with("MM"sv);
  if (!big && !block.starts_with("II"sv)) return 1;
  const TiffReader tiff(block, big);
  if (tiff.number(2, 2) != 42) return 1;
  const std::size_t directory = tiff.number(4, 4);
  const std::uint32_t entries = tiff.number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = directory + 2 + 12 * i;
    if (at > block.size()) break;
    if (tiff.number(at, 2) != kOrientationTag) continue;
    const std::uint32_t value = tiff.number(at + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

RgbImage upright(RgbImage image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool transposed = orientation >= 5;
  // Of the stored image, where the upright one's row 0 and column 0 begin.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage out{image.width, image.height, std::vector<std::uint8_t>(image.pixels.size())};
  if (transposed) std::swap(out.width, out.height);
  std::uint8_t* to = out.pixels.data();
  for (std::int32_t y = 0; y < out.height; ++y)
    for (std::int32_t x = 0; x < out.width; ++x, to += 3) {
      std::int32_t column = transposed ? y : x, row = transposed ? x : y;
      if (from_right) column = image.width - 1 - column;
      if (from_bottom) row = image.height - 1 - row;
      const auto at =
          (static_cast<std::size_t>(row) * static_cast<std::size_t>(image.width) + static_cast<std::size_t>(column)) *
          3;
      std::copy_n(image.pixels.data() + at, 3, to);
    }
  return out;
}

}  // namespace dllm
