// Scales and levels against the codecs.
#include "quant/block_grid.h"

#include <gtest/gtest.h>

#include "numerics/mx_tensor.h"
#include "quant/testing/row_test_data.h"

namespace dllm {
namespace {

using test::decode_doubles, test::normals;

std::vector<TensorType> types() {
  std::vector<TensorType> all = {TensorType::kQ4_0, TensorType::kQ8_0};
  for (const Codec* each : mx_codecs()) all.push_back(each->type);
  return all;
}

class Grids : public testing::TestWithParam<TensorType> {
 protected:
  const BlockGrid grid_ = *BlockGrid::of(GetParam());
  const std::size_t size_ = static_cast<std::size_t>(grid_.elements());
  const std::size_t bytes_ = static_cast<std::size_t>(codec(GetParam()).block_bytes);
};

INSTANTIATE_TEST_SUITE_P(Types, Grids, testing::ValuesIn(types()), [](const auto& one) {
  std::string name(codec(one.param).name);
  for (char& c : name)
    if (c == ':' || c == '-') c = '_';
  return name;
});

TEST_P(Grids, TheFirstScaleIsTheTypesOwn) {
  std::vector<std::uint16_t> scales;
  const int largest = mx_format_of(GetParam()) ? 25 : 10;  // scales in binary16 end earlier
  for (int power = -25; power < largest; ++power) {
    const std::vector<double> block = normals(size_, static_cast<std::uint32_t>(power + 25), std::ldexp(1.0, power));
    std::vector<float> x(block.begin(), block.end());
    std::vector<std::byte> expected(bytes_);
    codec(GetParam()).quantize(x.data(), expected.data(), grid_.elements());
    const std::vector<double> rounded = decode_doubles(GetParam(), expected, size_);
    grid_.scales(block, scales);
    const Levels levels = grid_.levels(scales.front());
    for (std::size_t i = 0; i < size_; ++i) {
      const double value = levels.nearest(block[i]).value;
      if (mx_format_of(GetParam())) {
        EXPECT_EQ(value, rounded[i]);
      } else {  // GGML divides by the scale before it is rounded to binary16
        EXPECT_LE(std::fabs(value - block[i]), std::fabs(rounded[i] - block[i]) * (1 + 1e-9));
      }
    }
  }
}

TEST_P(Grids, WrittenLevelsAreTheNearestThatTheTypeCanHold) {
  std::vector<std::uint16_t> scales;
  const int bits = GetParam() == TensorType::kQ4_0   ? 4
                   : GetParam() == TensorType::kQ8_0 ? 8
                                                     : mx_format_of(GetParam())->bits();
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const std::vector<double> block = normals(size_, seed + 100);
    grid_.scales(block, scales);
    for (const std::uint16_t scale : scales) {
      const Levels levels = grid_.levels(scale);
      std::vector<std::uint16_t> codes;
      std::vector<double> values;
      for (const double x : block) {
        codes.push_back(levels.nearest(x).code);
        values.push_back(levels.nearest(x).value);
      }
      std::vector<std::byte> bytes(bytes_);
      grid_.write(codes, scale, bytes.data());
      EXPECT_EQ(decode_doubles(GetParam(), bytes, size_), values);
      for (std::uint16_t code = 0; code < 1u << bits; ++code) {
        if (GetParam() == TensorType::kQ8_0 && code == 128) continue;  // the quantizer never writes -128
        if (const auto format = mx_format_of(GetParam())) {
          if (mx_is_special(format->element, code)) continue;
          const bool lowest = mx_element(format->element).exponent_bits == 0 && code == 1u << (bits - 1);
          if (lowest && format->rule != MxRule::kPlena) continue;
        }
        grid_.write(std::vector<std::uint16_t>(size_, code), scale, bytes.data());
        const double other = decode_doubles(GetParam(), bytes, size_).front();
        for (std::size_t i = 0; i < size_; ++i)
          EXPECT_LE(std::fabs(values[i] - block[i]), std::fabs(other - block[i]) * (1 + 1e-12));
      }
    }
  }
}

TEST_P(Grids, ZerosHaveOneScale) {
  std::vector<std::uint16_t> scales;
  const std::vector<double> zeros(size_, 0.0);
  grid_.scales(zeros, scales);
  ASSERT_EQ(scales.size(), 1u);
  std::vector<std::byte> bytes(bytes_), expected(bytes_);
  grid_.write(std::vector<std::uint16_t>(size_, grid_.levels(scales[0]).nearest(0).code), scales[0], bytes.data());
  EXPECT_EQ(decode_doubles(GetParam(), bytes, size_), zeros);
}

TEST(BlockGrid, OtherTypesHaveNone) {
  for (const TensorType type :
       {TensorType::kF32, TensorType::kF16, TensorType::kQ4_K, TensorType::kQ4_1, TensorType::kMXFP4})
    EXPECT_FALSE(BlockGrid::of(type)) << codec(type).name;
}

}  // namespace
}  // namespace dllm
