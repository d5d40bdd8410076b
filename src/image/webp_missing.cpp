#include "image/formats.h"

namespace dllm {

Expected<DecodedImage> decode_webp(std::string_view, const std::string& name) {
  return Error{ErrorCode::kUnsupported, "this build does not decode WebP images", name,
               "build it where libwebp-dev is installed, or convert the image"};
}

}  // namespace dllm
