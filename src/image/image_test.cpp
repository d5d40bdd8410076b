#include "image/image.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/testing/fuzz_replay.h"
#include "image/orientation.h"
#include "image/resize.h"
#include "image/testing/fuzz_entry.h"

namespace dllm {
namespace {

using nlohmann::json;

std::string test_file(const std::string& name) {
  std::ifstream file(DLLM_SOURCE_DIR "/src/image/testdata/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const json& known() {
  static const json all = json::parse(test_file("images.json"));
  return all;
}

std::string error_of(const std::string& bytes) {
  const auto image = decode_image(bytes, "a file");
  return image ? std::string() : image.error().message();
}

std::string format_of(const std::string& name) {
  if (name.ends_with(".png")) return "PNG";
  return name.ends_with(".jpg") ? "JPEG" : "WebP";
}

/// Bytes that its pixels take.
std::size_t to_pixels(const RgbImage& image) {
  return static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height) * 3;
}

std::string sum_of(const RgbImage& image) {
  Fnv1a hash;
  hash.add_word(static_cast<std::uint32_t>(image.width)).add_word(static_cast<std::uint32_t>(image.height));
  for (const std::uint8_t byte : image.pixels) hash.add(byte);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.value()));
  return text;
}

TEST(DecodeImage, PixelsAreThoseOfPillow) {
  for (const auto& [name, expected] : known()["files"].items()) {
    if (name == "cmyk.jpg" || !decodes_image(format_of(name))) continue;
    const auto image = decode_image(test_file(name), name);
    ASSERT_TRUE(image) << image.error().message();
    EXPECT_EQ(image->width, expected["width"].get<int>()) << name;
    EXPECT_EQ(image->height, expected["height"].get<int>()) << name;
    EXPECT_EQ(image->pixels.size(), to_pixels(*image)) << name;
    EXPECT_EQ(sum_of(*image), expected["sum"].get<std::string>()) << name;
  }
}

TEST(DecodeImage, WhatIsNotReadIsNamed) {
  EXPECT_NE(error_of("").find("the image is empty"), std::string::npos);
  EXPECT_NE(error_of("GIF89a").find("no PNG, JPEG or WebP"), std::string::npos);
  EXPECT_NE(error_of(std::string(kMostImageBytes + 1, 'x')).find("32 are read"), std::string::npos);
  if (decodes_image("JPEG")) {
    EXPECT_NE(error_of(test_file("cmyk.jpg")).find("CMYK"), std::string::npos);
  }
  if (decodes_image("WebP")) {
    EXPECT_NE(error_of(test_file("animation.webp")).find("animation"), std::string::npos);
  }
}

/// Every prefix is an error, and none of them crashes.
TEST(DecodeImage, CutFilesAreErrors) {
  for (const char* name : {"rgb.png", "palette.png", "colour.jpg", "progressive.jpg", "lossless.webp", "lossy.webp"}) {
    const std::string whole = test_file(name);
    // The ends of PNG and JPEG files hold no pixels: without them the image is the same.
    const std::size_t tail = format_of(name) == "PNG" ? 16 : format_of(name) == "JPEG" ? 2 : 1;
    for (std::size_t size = 0; size + tail < whole.size(); size += 1 + size / 16)
      EXPECT_NE(error_of(whole.substr(0, size)), "") << name << ", " << size;
  }
}

/// Damage may go unnoticed, but is never worse than a wrong picture or an error.
TEST(DecodeImage, DamagedFilesAreErrorsOrPictures) {
  for (const char* name : {"rgb.png", "grey.png", "exif.png", "colour.jpg", "progressive.jpg", "turned-6.jpg",
                           "lossless.webp", "lossy.webp", "exif.webp"}) {
    const std::string whole = test_file(name);
    for (std::size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
      const auto image = decode_image(damaged, name);
      if (image) {
        EXPECT_EQ(image->pixels.size(), to_pixels(*image));
      }
    }
  }
}

/// A few bytes that stand for gigabytes of pixels: refused before memory is asked for.
TEST(DecodeImage, BombsAreRefused) {
  if (decodes_image("PNG")) {
    std::string png = test_file("rgb.png");
    png.replace(16, 8, std::string("\0\0\x75\x30\0\0\x75\x30", 8));  // 30,000 x 30,000
    png.replace(29, 4, std::string("\xe9\x45\x6f\xed", 4));
    EXPECT_NE(error_of(png).find("30000 x 30000"), std::string::npos) << error_of(png);
  }
  if (decodes_image("JPEG")) {
    std::string jpeg = test_file("colour.jpg");
    const std::size_t frame = jpeg.find("\xff\xc0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, std::string("\x75\x30\x75\x30", 4));
    EXPECT_NE(error_of(jpeg).find("30000 x 30000"), std::string::npos) << error_of(jpeg);
  }
}

TEST(DecodeImage, CorpusOfTheFuzzer) { test::replay_corpus("image", 200, fuzz_image); }

/// A few hundred bytes cost a pass over all coefficients each.
TEST(DecodeImage, ScansWithoutEndAreRefused) {
  if (!decodes_image("JPEG")) GTEST_SKIP() << "built without libjpeg";
  const std::string jpeg = test_file("progressive.jpg");
  const std::size_t last = jpeg.rfind("\xff\xda"), end = jpeg.size() - 2;
  const std::string scan = jpeg.substr(last, end - last);
  const auto with_scans = [&](int count) {
    std::string repeated = jpeg.substr(0, last);
    for (int i = 0; i < count; ++i) repeated += scan;
    return repeated + jpeg.substr(end);
  };
  constexpr const char* kMany = "it has more scans than are read";
  EXPECT_EQ(error_of(with_scans(150)), "");
  EXPECT_NE(error_of(with_scans(250)).find(kMany), std::string::npos) << error_of(with_scans(250));
  // Of 8 million pixels 160, so that all together cost no more than 20 of the largest image.
  const auto large = [&](int count) {
    std::string file = with_scans(count);
    return file.replace(file.find("\xff\xc2") + 5, 4, std::string("\x03\xe8\x1f\x40", 4));  // 1000 lines of 8000
  };
  EXPECT_EQ(error_of(large(145)), "");
  EXPECT_NE(error_of(large(165)).find(kMany), std::string::npos) << error_of(large(165));
}

TEST(DecodeImage, OrientationBehindManyMarkers) {
  if (!decodes_image("JPEG")) GTEST_SKIP() << "built without libjpeg";
  const std::string turned = test_file("turned-6.jpg");
  std::string markers;
  for (int i = 0; i < 1000; ++i) markers += std::string("\xff\xe1\0\x02\xff\xff\xfe\0\x03x", 10);
  const auto image = decode_image(turned.substr(0, 2) + markers + turned.substr(2), "");
  ASSERT_TRUE(image) << image.error().message();
  EXPECT_EQ(image->width, 17);
  EXPECT_EQ(*image, *decode_image(turned, ""));
}

TEST(Orientation, IsReadFromBothByteOrders) {
  using namespace std::string_view_literals;
  constexpr std::string_view kBig = "MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"sv;
  constexpr std::string_view kLittle = "II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0\0\0\0\0"sv;
  EXPECT_EQ(exif_orientation(kBig), 6);
  EXPECT_EQ(exif_orientation(std::string("Exif\0\0", 6) + std::string(kBig)), 6);
  EXPECT_EQ(exif_orientation(kLittle), 8);
  for (std::size_t size = 0; size < 20; ++size) EXPECT_EQ(exif_orientation(kBig.substr(0, size)), 1) << size;
  std::string wrong(kBig);
  wrong[19] = 9;
  EXPECT_EQ(exif_orientation(wrong), 1);
}

TEST(ResizeBicubic, PixelsAreThoseOfTorchvision) {
  const auto source = decode_image(test_file("rgb.png"), "rgb.png");
  if (!source) GTEST_SKIP() << source.error().message();
  for (const json& expected : known()["resized"]) {
    const RgbImage image = resize_bicubic(*source, expected["width"], expected["height"]);
    std::string hex;
    for (const std::uint8_t byte : image.pixels) {
      char text[3];
      std::snprintf(text, sizeof text, "%02x", byte);
      hex += text;
    }
    EXPECT_EQ(hex, expected["pixels"].get<std::string>()) << image.width << " x " << image.height;
  }
  EXPECT_EQ(resize_bicubic(*source, source->width, source->height), *source);
}

}  // namespace
}  // namespace dllm
