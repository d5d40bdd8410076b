#include "numerics/mx_tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace dllm {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<float> draws(std::size_t count) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::ldexp(normal(random), static_cast<int>(i / 32 % 40) - 20);
  return values;
}

Bytes encode(const Codec& codec, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Bytes bytes(static_cast<std::size_t>(codec.row_bytes(count)));
  codec.quantize(values.data(), bytes.data(), count);
  return bytes;
}

class MxTensor : public testing::TestWithParam<const Codec*> {
 protected:
  const Codec& codec_ = *GetParam();
  const MxFormat format_ = *mx_format_of(codec_.type);
};

INSTANTIATE_TEST_SUITE_P(Types, MxTensor, testing::ValuesIn(mx_codecs().begin(), mx_codecs().end()),
                         [](const auto& one) {
                           std::string name(one.param->name);
                           for (char& c : name)
                             if (c == ':' || c == '-') c = '_';
                           return name;
                         });

/// The same numbers as the two streams that accelerators store.
TEST_P(MxTensor, StoresWhatMxQuantizeGives) {
  std::vector<float> values = draws(640);
  std::fill_n(values.begin(), 32, 0.0f);
  std::vector<std::uint16_t> codes(values.size()), read(32);
  std::vector<std::uint8_t> scales(format_.scale_bytes(values.size()));
  mx_quantize(format_, values.data(), values.size(), codes.data(), scales.data());
  std::vector<float> expected(values.size()), got(values.size());
  mx_dequantize(format_, codes.data(), scales.data(), values.size(), expected.data());
  const Bytes bytes = encode(codec_, values);
  codec_.dequantize(bytes.data(), got.data(), static_cast<std::int64_t>(got.size()));
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
  for (std::size_t b = 0; b < scales.size(); ++b) {
    std::uint8_t scale = 0;
    mx_read_block(format_, bytes.data() + b * static_cast<std::size_t>(codec_.block_bytes), read.data(), scale);
    EXPECT_EQ(scale, scales[b]);
    for (std::size_t i = 0; i < static_cast<std::size_t>(format_.block); ++i)
      EXPECT_EQ(read[i], codes[b * static_cast<std::size_t>(format_.block) + i]);
  }
}

TEST_P(MxTensor, EveryPatternOfBitsSurvivesReadingAndWriting) {
  std::mt19937 random(5);
  Bytes block(static_cast<std::size_t>(codec_.block_bytes)), again(block.size());
  std::vector<std::uint16_t> codes(32);
  std::vector<float> values(32);
  for (int round = 0; round < 200; ++round) {
    for (std::byte& byte : block) byte = static_cast<std::byte>(random());
    std::uint8_t scale = 0;
    mx_read_block(format_, block.data(), codes.data(), scale);
    mx_write_block(format_, codes.data(), scale, again.data());
    EXPECT_EQ(again, block);
    codec_.dequantize(block.data(), values.data(), format_.block);
    const bool nan = scale == kMxScaleNan;
    if (!nan && scale > 200) continue;  // products with the largest scales are infinite
    for (std::size_t i = 0; i < static_cast<std::size_t>(format_.block); ++i)
      EXPECT_EQ(std::isfinite(values[i]), !nan && !mx_is_special(format_.element, codes[i]));
  }
}

TEST_P(MxTensor, ReadsAndWritesUnalignedMemory) {
  const std::vector<float> values = draws(64);
  const Bytes aligned = encode(codec_, values);
  Bytes shifted(aligned.size() + 1);
  codec_.quantize(values.data(), shifted.data() + 1, 64);
  EXPECT_TRUE(std::equal(aligned.begin(), aligned.end(), shifted.begin() + 1));
  std::vector<float> a(64), b(64);
  codec_.dequantize(aligned.data(), a.data(), 64);
  codec_.dequantize(shifted.data() + 1, b.data(), 64);
  EXPECT_EQ(a, b);
  codec_.quantize(nullptr, nullptr, 0);
  codec_.dequantize(nullptr, nullptr, 0);
}

TEST_P(MxTensor, SurvivesExtremeInput) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  for (const float first : {kInf, std::nanf(""), kMax, 1e-45f, -0.0f})
    for (const float second : {-kInf, -kMax, 1.0f, -1e-39f}) {
      std::vector<float> values(64, first);
      for (std::size_t i = 0; i < values.size(); i += 3) values[i] = second;
      const Bytes bytes = encode(codec_, values);
      codec_.dequantize(bytes.data(), values.data(), 64);
    }
}

TEST(MxTensors, HaveNumbersAndNames) {
  std::set<std::uint32_t> numbers;
  std::uint32_t last = 0;
  for (const Codec* each : mx_codecs()) {
    const auto number = static_cast<std::uint32_t>(each->type);
    EXPECT_GT(number, last) << "ascending";
    last = number;
    EXPECT_EQ(number >> 16, 0x4d58u);
    const MxFormat format = *mx_format_of(each->type);
    EXPECT_EQ(mx_format_number(format), number & 0xffffu);
    EXPECT_EQ(mx_tensor_type(format), each->type);
    EXPECT_EQ(each->name, mx_format_name(format));
    EXPECT_EQ(find_codec(number), each);
    EXPECT_EQ(&codec(each->type), each);
    EXPECT_EQ(tensor_type_from_name(each->name), each->type);
    EXPECT_EQ(each->block_elems, format.block);
    EXPECT_EQ(each->block_bytes, 1 + format.block * format.bits() / 8);
  }
  EXPECT_EQ(mx_codecs().size(), 33u);
  for (const Codec* each : all_codecs()) EXPECT_EQ(mx_format_of(each->type), std::nullopt) << each->name;
  for (const std::uint32_t unknown :
       {kMxTypeBase, kMxTypeBase | 0x351u, kMxTypeBase | 0x157u, 0x4d590050u, 0x4d57ffffu})
    EXPECT_EQ(find_codec(unknown), nullptr) << unknown;
}

TEST(MxTensors, ShortNames) {
  const auto type = [](const MxFormat& format) { return std::optional(mx_tensor_type(format)); };
  EXPECT_EQ(tensor_type_from_name("MXINT4"), type({MxElement::kInt4, MxRule::kOcp, 32}));
  EXPECT_EQ(tensor_type_from_name("MxInt8:16:PLENA"), type({MxElement::kInt8, MxRule::kPlena, 16}));
  EXPECT_EQ(tensor_type_from_name("mxfp8"), type({MxElement::kE4M3, MxRule::kOcp, 32}));
  EXPECT_EQ(tensor_type_from_name("MXFP8:8"), type({MxElement::kE4M3, MxRule::kOcp, 8}));
  EXPECT_EQ(tensor_type_from_name("mxfp8_e5m2"), type({MxElement::kE5M2, MxRule::kOcp, 32}));
  EXPECT_EQ(tensor_type_from_name("mxfp4"), TensorType::kMXFP4) << "GGML's";
  EXPECT_EQ(tensor_type_from_name("mxfp4_e2m1"), type({MxElement::kE2M1, MxRule::kOcp, 32}));
  // One rule with two names.
  EXPECT_EQ(tensor_type_from_name("mxfp8_e4m3:32:plena"), tensor_type_from_name("mxfp8_e4m3:32:ocp"));
  for (const char* bad : {"mxint5", "mxint4:64", "mxint4:32:floor", "mxint4:", "mxfp8e4m3", "mx"})
    EXPECT_EQ(tensor_type_from_name(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace dllm
