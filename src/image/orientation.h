#pragma once

#include <string_view>

#include "image/image.h"

namespace dllm {

/// The orientation of an EXIF block: a TIFF header and its first directory, with or without "Exif\0\0" in front (CIPA
/// DC-008-2012, 4.6.4). 1 if it has none, or cannot be read.
int exif_orientation(std::string_view block);

/// The image turned and mirrored so that it is upright; `orientation`: 1 to 8.
RgbImage upright(RgbImage image, int orientation);

}  // namespace dllm
