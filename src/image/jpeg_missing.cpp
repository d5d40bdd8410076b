#include "image/formats.h"

namespace dllm {

Expected<DecodedImage> decode_jpeg(std::string_view, const std::string& name) {
  return Error{ErrorCode::kUnsupported, "this build does not decode JPEG images", name,
               "build it where libjpeg62-turbo-dev is installed, or convert the image"};
}

}  // namespace dllm
