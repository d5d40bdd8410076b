#include <webp/decode.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/try.h"
#include "image/formats.h"
#include "image/orientation.h"

namespace dllm {
namespace {

/// The bytes of the first chunk of this kind (RIFF container,
/// https://developers.google.com/speed/webp/docs/riff_container).
std::optional<std::string_view> riff_chunk(std::string_view file, std::string_view kind) {
  std::size_t at = 12;
  while (at <= file.size() && file.size() - at >= 8) {
    std::size_t size = 0;
    for (std::size_t i = 4; i-- > 0;) size = size << 8 | static_cast<std::uint8_t>(file[at + 4 + i]);
    const std::string_view data = file.substr(at + 8);
    if (size > data.size()) return {};
    if (file.substr(at, 4) == kind) return data.substr(0, size);
    at += 8 + size + size % 2;
  }
  return {};
}

}  // namespace

Expected<DecodedImage> decode_webp(std::string_view file, const std::string& name) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes, file.size(), &features) != VP8_STATUS_OK)
    return damaged_image(name, "its header is damaged or cut off");
  if (features.has_animation != 0)
    return Error{ErrorCode::kUnsupported, "the image is an animation", name, "give one of its pictures"};
  DLLM_CHECK_OK(check_image_size(features.width, features.height, name));
  const std::size_t row_bytes = 3 * static_cast<std::size_t>(features.width);
  DecodedImage out{{features.width, features.height, {}}, 1};
  out.image.pixels.resize(row_bytes * static_cast<std::size_t>(features.height));
  if (WebPDecodeRGBInto(bytes, file.size(), out.image.pixels.data(), out.image.pixels.size(),
                        static_cast<int>(row_bytes)) == nullptr)
    return damaged_image(name, "its data are damaged or cut off");
  if (const auto exif = riff_chunk(file, "EXIF")) out.orientation = exif_orientation(*exif);
  return out;
}

}  // namespace dllm
