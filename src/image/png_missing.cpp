#include "image/formats.h"

namespace dllm {

Expected<DecodedImage> decode_png(std::string_view, const std::string& name) {
  return Error{ErrorCode::kUnsupported, "this build does not decode PNG images", name,
               "build it where libpng-dev is installed, or convert the image"};
}

}  // namespace dllm
