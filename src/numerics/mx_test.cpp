#include "numerics/mx.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <random>
#include <vector>

namespace dllm {
namespace {

constexpr float kFloatInf = std::numeric_limits<float>::infinity();

MxFormat format(MxElement element, MxRule rule = MxRule::kOcp, int block = 8) { return {element, rule, block}; }

struct Block {
  std::vector<std::uint16_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<float> values;
  std::vector<int> fixed;
};

/// Quantizes one block of four (padded with zeros to eight).
Block quantize(MxFormat f, std::vector<float> x) {
  x.resize(static_cast<std::size_t>(f.block), 0.0f);
  Block block;
  block.codes.resize(x.size());
  block.scales.resize(1);
  block.values.resize(x.size());
  mx_quantize(f, x.data(), x.size(), block.codes.data(), block.scales.data());
  mx_dequantize(f, block.codes.data(), block.scales.data(), x.size(), block.values.data());
  for (std::size_t i = 0; i < 4; ++i) block.fixed.push_back(static_cast<int>(mx_fixed(f.element, block.codes[i])));
  block.values.resize(4);
  return block;
}

// Blocks worked by hand.
const std::vector<float> kMixed = {0.1f, -0.7f, 2.5f, 7.9f};
const std::vector<float> kPowerOfTwo = {1.0f, -4.0f, 0.3f, 2.2f};

TEST(Mx, WorkedFloatBlocks) {
  const Block fp4 = quantize(format(MxElement::kE2M1), kMixed);
  EXPECT_EQ(fp4.scales[0], 127);
  EXPECT_EQ(fp4.values, (std::vector<float>{0.0f, -0.5f, 2.0f, 6.0f}));
  const Block fp8 = quantize(format(MxElement::kE4M3), kMixed);
  EXPECT_EQ(fp8.scales[0], 127 - 6);
  EXPECT_EQ(fp8.values, (std::vector<float>{0.1015625f, -0.6875f, 2.5f, 7.0f}));
}

TEST(Mx, WorkedIntegerBlocks) {
  const Block ocp = quantize(format(MxElement::kInt8), kMixed);
  EXPECT_EQ(ocp.fixed, (std::vector<int>{2, -11, 40, 126}));
  EXPECT_EQ(ocp.values[2], 40.0f / 16.0f);
  const Block plena = quantize(format(MxElement::kInt8, MxRule::kPlena), kMixed);
  EXPECT_EQ(plena.fixed, (std::vector<int>{2, -11, 40, 126}));
  EXPECT_EQ(plena.values, ocp.values);
  for (const MxRule rule : {MxRule::kOcp, MxRule::kPlena})
    EXPECT_EQ(quantize(format(MxElement::kInt4, rule), kMixed).fixed, (std::vector<int>{0, -1, 2, 7}));
}

TEST(Mx, PowerOfTwoMaximumSeparatesTheRules) {
  EXPECT_EQ(quantize(format(MxElement::kInt8), kPowerOfTwo).fixed, (std::vector<int>{16, -64, 5, 35}));
  EXPECT_EQ(quantize(format(MxElement::kInt8, MxRule::kPlena), kPowerOfTwo).fixed,
            (std::vector<int>{32, -128, 10, 70}));
  EXPECT_EQ(quantize(format(MxElement::kInt8, MxRule::kPlenaSymmetric), kPowerOfTwo).fixed,
            (std::vector<int>{32, -127, 10, 70}));
  EXPECT_EQ(quantize(format(MxElement::kInt4), kPowerOfTwo).fixed, (std::vector<int>{1, -4, 0, 2}));
  EXPECT_EQ(quantize(format(MxElement::kInt4, MxRule::kPlena), kPowerOfTwo).values,
            (std::vector<float>{1, -4, 0.5, 2}));
}

/// E4M3 codes at scale 1: a block whose largest element is 256 has shared exponent 8 - 8 = 0.
std::uint16_t e4m3(float x) { return quantize(format(MxElement::kE4M3), {x, 256.0f, 0.0f, 0.0f}).codes[0]; }

TEST(Mx, E4M3RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(e4m3(464.0f), 0x7e);
  EXPECT_EQ(e4m3(500.0f), 0x7e);
  EXPECT_EQ(e4m3(1.0625f), 0x38);
  EXPECT_EQ(e4m3(1.1875f), 0x3a);
  EXPECT_EQ(e4m3(0x1p-10f), 0x00);
  EXPECT_EQ(e4m3(0x1.8p-10f), 0x01);
  EXPECT_EQ(e4m3(-448.0f), 0xfe);
}

TEST(Mx, ElementTables) {
  // Largest and smallest elements of the OCP specification, by their codes.
  EXPECT_EQ(std::ldexp(static_cast<double>(mx_fixed(MxElement::kE5M2, 0x7b)), -16), 57344.0);
  EXPECT_EQ(mx_fixed(MxElement::kE5M2, 0x01), 1);
  EXPECT_EQ(std::ldexp(static_cast<double>(mx_fixed(MxElement::kE3M2, 0x1f)), -4), 28.0);
  EXPECT_EQ(std::ldexp(static_cast<double>(mx_fixed(MxElement::kE2M3, 0x1f)), -3), 7.5);
  const std::array<double, 8> e2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint32_t code = 0; code < 16; ++code) {
    const double value = e2m1[code & 7];
    EXPECT_EQ(static_cast<double>(mx_fixed(MxElement::kE2M1, code)) / 2, code < 8 ? value : -value);
  }
  EXPECT_TRUE(mx_is_special(MxElement::kE4M3, 0x7f));
  EXPECT_FALSE(mx_is_special(MxElement::kE4M3, 0x7e));
  EXPECT_TRUE(mx_is_special(MxElement::kE5M2, 0xfc));
}

TEST(Mx, MagnitudeBitsBoundEveryElement) {
  for (int i = 0; i < kMxElementCount; ++i) {
    const auto element = static_cast<MxElement>(i);
    std::int64_t top = 0;
    for (std::uint32_t code = 0; code < 1u << mx_element(element).bits; ++code)
      top = std::max(top, std::abs(mx_fixed(element, code)));
    EXPECT_LE(top, std::int64_t{1} << mx_element(element).magnitude_bits) << mx_element(element).name;
    EXPECT_GT(top, std::int64_t{1} << (mx_element(element).magnitude_bits - 1)) << mx_element(element).name;
  }
}

std::vector<MxFormat> all_formats() {
  std::vector<MxFormat> formats;
  for (int element = 0; element < kMxElementCount; ++element)
    for (int rule = 0; rule < kMxRuleCount; ++rule)
      for (const int block : {8, 16, 32})
        formats.push_back({static_cast<MxElement>(element), static_cast<MxRule>(rule), block});
  formats.push_back({});
  return formats;
}

// An independent definition: the code of the element that is nearest at the block's scale; ties go to the even code.
double element_value(const MxFormat& f, std::uint32_t code) {
  return std::ldexp(static_cast<double>(mx_fixed(f.element, code)), -f.fraction());
}

TEST(Mx, EveryElementIsTheNearest) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const MxFormat& f : all_formats()) {
    if (!f.scaled()) continue;
    for (int round = 0; round < 20; ++round) {
      std::vector<float> x(32);
      for (float& v : x) v = std::ldexp(normal(random), round * 7 - 70);
      std::vector<std::uint16_t> codes(32);
      std::vector<std::uint8_t> scales(4);
      mx_quantize(f, x.data(), 32, codes.data(), scales.data());
      for (std::size_t i = 0; i < 32; ++i) {
        const double y =
            std::ldexp(static_cast<double>(x[i]), kMxScaleBias - scales[i / static_cast<std::size_t>(f.block)]);
        const double error = std::fabs(element_value(f, codes[i]) - y);
        for (std::uint32_t code = 0; code < 1u << f.bits(); ++code) {
          if (mx_is_special(f.element, code)) continue;
          const bool lowest = mx_element(f.element).exponent_bits == 0 && code == 1u << (f.bits() - 1);
          if (lowest && f.rule != MxRule::kPlena) continue;
          EXPECT_LE(error, std::fabs(element_value(f, code) - y)) << mx_format_name(f) << " " << x[i];
        }
      }
    }
  }
}

TEST(Mx, WhatIsRepresentableStays) {
  for (const MxFormat& f : all_formats()) {
    std::vector<float> x(32), again(32);
    std::vector<std::uint16_t> codes(32);
    std::vector<std::uint8_t> scales(4);
    std::mt19937 random(3);
    for (float& v : x) v = static_cast<float>(random() % 1000) - 500.0f;
    mx_quantize(f, x.data(), 32, codes.data(), scales.data());
    mx_dequantize(f, codes.data(), scales.data(), 32, x.data());
    mx_quantize(f, x.data(), 32, codes.data(), scales.data());
    mx_dequantize(f, codes.data(), scales.data(), 32, again.data());
    // PLENA's ceiling rule rescales a block whose largest element has become a power of two, so we only check
    // closeness.
    if (f.rule == MxRule::kOcp) {
      EXPECT_EQ(x, again) << mx_format_name(f);
    }
  }
}

TEST(Mx, ZerosInfinitiesAndExtremes) {
  const MxFormat f = format(MxElement::kInt8);
  EXPECT_EQ(quantize(f, {0, 0, 0, 0}).scales[0], 0);
  EXPECT_EQ(quantize(f, {0, -0.0f, 0, 0}).fixed, (std::vector<int>{0, 0, 0, 0}));
  for (const float bad : {kFloatInf, -kFloatInf, std::nanf("")}) {
    const Block block = quantize(f, {1, bad, 2, 3});
    EXPECT_EQ(block.scales[0], kMxScaleNan);
    EXPECT_TRUE(std::isnan(block.values[0]));
  }
  const float top = std::numeric_limits<float>::max();
  for (const MxFormat& each : all_formats()) {
    if (!each.scaled() || each.block != 8) continue;
    const Block large = quantize(each, {top, -top, 1, 0});
    EXPECT_TRUE(std::isfinite(large.values[0])) << mx_format_name(each);
    EXPECT_GE(large.values[0], 0.4f * top) << mx_format_name(each);
    const Block small = quantize(each, {0x1p-149f, 0, 0, 0});
    EXPECT_LE(std::fabs(small.values[0]), 0x1p-126f) << mx_format_name(each);
  }
}

TEST(Mx, NamesAndNumbers) {
  for (const MxFormat& f : all_formats()) {
    EXPECT_EQ(mx_format_from_name(mx_format_name(f)), f);
    EXPECT_EQ(mx_format_from_number(mx_format_number(f)), f);
  }
  EXPECT_EQ(mx_format_from_name("mxint8"), (MxFormat{MxElement::kInt8, MxRule::kOcp, 32}));
  for (const char* bad : {"", "int8", "mxint8:7", "mxint8:32:floor", "bf16:32", "mxint8:32:ocp:", "mxint8:"})
    EXPECT_FALSE(mx_format_from_name(bad)) << bad;
  EXPECT_FALSE(mx_format_from_number(0x0d));
  EXPECT_FALSE(mx_format_from_number(0x01));  // block 1
  EXPECT_FALSE(mx_format_from_number(0x351));
}

TEST(Mx, PackingIsALittleEndianBitStream) {
  const std::vector<std::uint16_t> nibbles = {1, 2, 3, 15};
  std::vector<std::byte> bytes(2);
  mx_pack(4, nibbles.data(), 4, bytes.data());
  EXPECT_EQ(bytes, (std::vector<std::byte>{std::byte{0x21}, std::byte{0xf3}}));
  std::mt19937 random(1);
  for (const int width : {4, 6, 8, 16}) {
    std::vector<std::uint16_t> codes(64), again(64);
    for (auto& code : codes) code = static_cast<std::uint16_t>(random() & ((1u << width) - 1u));
    std::vector<std::byte> stream(64 * static_cast<std::size_t>(width) / 8);
    mx_pack(width, codes.data(), 64, stream.data());
    mx_unpack(width, stream.data(), 64, again.data());
    EXPECT_EQ(codes, again) << width;
  }
}

}  // namespace
}  // namespace dllm
