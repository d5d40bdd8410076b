// libpng reports errors by longjmp: the functions that may be left that way own nothing.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/try.h"
#include "image/formats.h"
#include "image/orientation.h"

namespace dllm {
namespace {

/// Of compressed texts and colour profiles, which are not used.
constexpr png_alloc_size_t kMostChunkBytes = png_alloc_size_t{8} << 20;

class PngReader {
 public:
  explicit PngReader(std::string_view file) : file_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  const char* error() const { return error_.data(); }
  png_uint_32 width() const { return png_get_image_width(png_, info_); }
  png_uint_32 height() const { return png_get_image_height(png_, info_); }
  std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

  bool read_header() {
    if (png_ == nullptr || info_ == nullptr) return std::strcpy(error_.data(), "no memory"), false;
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, read);
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_set_chunk_cache_max(png_, 1);  // texts and suggested palettes, which are not used, are not kept
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_image_size() has the words for it
    png_read_info(png_, info_);
    return true;
  }

  /// From here on, rows are of RGB.
  bool choose_rgb() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const png_byte kind = png_get_color_type(png_, info_);
    if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (kind == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png_, info_) < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if ((kind & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }

  int orientation() {
    png_uint_32 size = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0) return 1;
    return exif_orientation({reinterpret_cast<const char*>(exif), size});
  }

 private:
  [[noreturn]] static void fail(png_structp png, png_const_charp message) {
    auto& self = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self.error_.data(), message, self.error_.size() - 1);
    png_longjmp(png, 1);
  }
  static void read(png_structp png, png_bytep to, std::size_t count) {
    auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (self.file_.size() - self.at_ < count) png_error(png, "the file is cut off");
    std::memcpy(to, self.file_.data() + self.at_, count);
    self.at_ += count;
  }

  std::string_view file_;
  std::size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<char> error_ = std::vector<char>(256);
};

}  // namespace

Expected<DecodedImage> decode_png(std::string_view file, const std::string& name) {
  PngReader reader(file);
  if (!reader.read_header()) return damaged_image(name, reader.error());
  DLLM_CHECK_OK(check_image_size(reader.width(), reader.height(), name));
  const int orientation = reader.orientation();
  if (!reader.choose_rgb()) return damaged_image(name, reader.error());
  const std::size_t width = reader.width(), height = reader.height();
  if (reader.row_bytes() != 3 * width) return damaged_image(name, "its colours cannot be converted");
  DecodedImage out{{static_cast<std::int32_t>(width), static_cast<std::int32_t>(height), {}}, orientation};
  out.image.pixels.resize(3 * width * height);
  std::vector<png_bytep> rows(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = out.image.pixels.data() + y * 3 * width;
  if (!reader.read_rows(rows.data())) return damaged_image(name, reader.error());
  return out;
}

}  // namespace dllm
