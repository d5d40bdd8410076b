#include <fmt/format.h>

#include <utility>

#include "base/try.h"
#include "image/formats.h"
#include "image/image.h"
#include "image/orientation.h"

namespace dllm {

Error damaged_image(const std::string& name, const std::string& what) {
  return {ErrorCode::kInvalidFile, "the image cannot be decoded: " + what, name, ""};
}

Expected<void> check_image_size(std::int64_t width, std::int64_t height, const std::string& name) {
  if (width < 1 || height < 1) return damaged_image(name, fmt::format("it has {} x {} pixels", width, height));
  if (width <= kMostImageSide && height <= kMostImageSide && width * height <= kMostImagePixels) return {};
  return Error{ErrorCode::kInvalidFile,
               fmt::format("the image has {} x {} pixels; at most {} a side and {} million together are read", width,
                           height, kMostImageSide, kMostImagePixels / 1'000'000),
               name, "make it smaller; models see a few hundred pixels a side"};
}

Expected<RgbImage> decode_image(std::string_view file, const std::string& name) {
  using namespace std::string_view_literals;
  if (file.size() > kMostImageBytes)
    return Error{ErrorCode::kInvalidFile,
                 fmt::format("the image has {} MiB; at most {} are read", file.size() >> 20, kMostImageBytes >> 20),
                 name, ""};
  Expected<DecodedImage> (*decode)(std::string_view, const std::string&) = nullptr;
  if (file.starts_with("\x89PNG\r\n\x1a\n"sv)) decode = decode_png;
  if (file.starts_with("\xff\xd8\xff"sv)) decode = decode_jpeg;
  if (file.size() >= 12 && file.starts_with("RIFF"sv) && file.substr(8, 4) == "WEBP"sv) decode = decode_webp;
  if (decode == nullptr)
    return Error{ErrorCode::kUnsupported, file.empty() ? "the image is empty" : "this is no PNG, JPEG or WebP image",
                 name, "convert it to one of these"};
  DLLM_TRY(DecodedImage decoded, decode(file, name));
  return upright(std::move(decoded.image), decoded.orientation);
}

bool decodes_image([[maybe_unused]] std::string_view format) {
#ifdef DLLM_HAS_PNG
  if (format == "PNG") return true;
#endif
#ifdef DLLM_HAS_JPEG
  if (format == "JPEG") return true;
#endif
#ifdef DLLM_HAS_WEBP
  if (format == "WebP") return true;
#endif
  return false;
}

}  // namespace dllm
