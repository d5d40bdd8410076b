// libjpeg reports errors by longjmp: the functions that may be left that way own nothing.
#include <cstddef>
#include <cstdio>
// jpeglib.h needs size_t and FILE.
#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <csetjmp>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/try.h"
#include "image/formats.h"
#include "image/orientation.h"

namespace dllm {
namespace {

/// Encoders write about ten; each one costs a pass over all coefficients, though a hundred bytes may be all it has.
constexpr std::int64_t kMostScans = 200, kMostScannedPixels = 20 * kMostImagePixels;

/// The EXIF block of APP1, or an empty one: markers up to the first scan (ITU-T T.81, B.1.1). libjpeg can keep markers
/// itself (jpeg_save_markers), but walks along all of them to append one: time that grows with their square.
std::string_view exif_block(std::string_view file) {
  using namespace std::string_view_literals;
  constexpr std::uint8_t kStartOfScan = 0xda, kApp1 = 0xe1;
  for (std::size_t at = 2; at + 4 <= file.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(file[at + i]); };
    if (byte(0) != 0xff || byte(1) == 0xff || byte(1) == 0) {  // filling, or bytes that libjpeg skips too
      ++at;
      continue;
    }
    const std::size_t length = std::size_t{byte(2)} << 8 | byte(3);
    if (byte(1) == kStartOfScan || length < 2) break;
    const std::string_view data = file.substr(at + 4, length - 2);
    if (byte(1) == kApp1 && data.starts_with("Exif\0\0"sv)) return data;
    at += 2 + length;
  }
  return {};
}

class JpegReader {
 public:
  explicit JpegReader(std::string_view file) : file_(file) {
    jpeg_.err = jpeg_std_error(&handler_);
    jpeg_.client_data = this;
    handler_.error_exit = fail;
    handler_.emit_message = warn;
    progress_.progress_monitor = watch;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const char* error() const { return error_.data(); }
  const jpeg_decompress_struct& jpeg() const { return jpeg_; }
  bool cut_off() const { return cut_off_; }

  bool read_header() {
    if (setjmp(jump_) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(file_.data()), file_.size());
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }

  bool read_rows(std::uint8_t* pixels) {
    if (setjmp(jump_) != 0) return false;
    jpeg_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    const std::size_t row_bytes = std::size_t{jpeg_.output_width} * 3;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = pixels + jpeg_.output_scanline * row_bytes;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

 private:
  [[noreturn]] static void fail(j_common_ptr jpeg) {
    auto& self = *static_cast<JpegReader*>(jpeg->client_data);
    jpeg->err->format_message(jpeg, self.error_.data());
    std::longjmp(self.jump_, 1);
  }
  /// Data that end early are completed with grey, and only a warning says so.
  static void warn(j_common_ptr jpeg, int) {
    auto& self = *static_cast<JpegReader*>(jpeg->client_data);
    if (jpeg->err->msg_code == JWRN_JPEG_EOF) self.cut_off_ = true;
  }
  static void watch(j_common_ptr jpeg) {
    const auto* const read = reinterpret_cast<j_decompress_ptr>(jpeg);
    const std::int64_t scans = read->input_scan_number;
    const std::int64_t pixels = std::int64_t{read->image_width} * read->image_height;
    if (scans > kMostScans || scans * pixels > kMostScannedPixels) {
      auto& self = *static_cast<JpegReader*>(jpeg->client_data);
      std::snprintf(self.error_.data(), self.error_.size(), "it has more scans than are read");
      std::longjmp(self.jump_, 1);
    }
  }

  std::string_view file_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr handler_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf jump_{};
  std::array<char, JMSG_LENGTH_MAX> error_{};
  bool cut_off_ = false;
};

}  // namespace

Expected<DecodedImage> decode_jpeg(std::string_view file, const std::string& name) {
  JpegReader reader(file);
  if (!reader.read_header()) return damaged_image(name, reader.error());
  const jpeg_decompress_struct& jpeg = reader.jpeg();
  DLLM_CHECK_OK(check_image_size(jpeg.image_width, jpeg.image_height, name));
  if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK)
    return Error{ErrorCode::kUnsupported, "the image has the colours of print (CMYK)", name, "convert it to RGB"};
  const std::size_t width = jpeg.image_width, height = jpeg.image_height;
  DecodedImage out{{static_cast<std::int32_t>(width), static_cast<std::int32_t>(height), {}},
                   exif_orientation(exif_block(file))};
  out.image.pixels.resize(3 * width * height);
  if (!reader.read_rows(out.image.pixels.data())) return damaged_image(name, reader.error());
  if (reader.cut_off()) return damaged_image(name, "the file is cut off");
  return out;
}

}  // namespace dllm
