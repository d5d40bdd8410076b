#include "numerics/packed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "numerics/half.h"

namespace dllm {
namespace {

std::vector<float> normals_for(std::size_t n) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Packed, FormatsHaveNamesAndNumbers) {
  for (const char* name : {"fp16", "q4_0", "q8_0"}) {
    const MxFormat format = *mx_format_from_name(name);
    EXPECT_EQ(mx_format_name(format), name);
    EXPECT_EQ(mx_format_from_number(mx_format_number(format)), format);
    EXPECT_FALSE(mx_format_from_name(std::string(name) + ":32"));
  }
  EXPECT_DOUBLE_EQ(mx_format_from_name("q4_0")->average_bits(), 4.5);
  EXPECT_DOUBLE_EQ(mx_format_from_name("q8_0")->average_bits(), 8.5);
  EXPECT_FALSE(mx_format_from_number(9 | 4 << 4)) << "blocks of 16";
  EXPECT_FALSE(mx_format_from_number(11));
}

/// Blocks are GGML's, and values GGML's rounded to float16.
TEST(Packed, BlocksAreGgmls) {
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0}) {
    const MxElement element = type == TensorType::kQ4_0 ? MxElement::kQ4_0 : MxElement::kQ8_0;
    const MxFormat format{element, MxRule::kOcp, kPackedBlock};
    const std::vector<float> x = normals_for(128);
    std::vector<std::byte> blocks(static_cast<std::size_t>(codec(type).row_bytes(128))), again(blocks.size());
    codec(type).quantize(x.data(), blocks.data(), 128);
    std::vector<float> exact(128), values(128);
    codec(type).dequantize(blocks.data(), exact.data(), 128);
    std::vector<std::uint16_t> codes(128);
    std::vector<std::uint8_t> scales(format.scale_bytes(128));
    mx_quantize(format, x.data(), 128, codes.data(), scales.data());
    mx_dequantize(format, codes.data(), scales.data(), 128, values.data());
    const std::size_t bytes = packed_block_bytes(element);
    for (std::size_t b = 0; b < 4; ++b) {
      std::uint16_t read[kPackedBlock], scale = 0;
      read_packed_block(element, blocks.data() + b * bytes, read, scale);
      EXPECT_EQ(std::memcmp(read, codes.data() + b * kPackedBlock, sizeof read), 0);
      EXPECT_EQ(std::memcmp(&scale, scales.data() + 2 * b, 2), 0);
      write_packed_block(element, read, scale, again.data() + b * bytes);
    }
    EXPECT_EQ(again, blocks);
    for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(values[i], f16_to_f32(f32_to_f16(exact[i])));
  }
}

TEST(Packed, TilesAreCodesThenScales) {
  for (const MxElement element : {MxElement::kQ4_0, MxElement::kQ8_0}) {
    const MxFormat format{element, MxRule::kOcp, kPackedBlock};
    const Codec& tiles = codec(tile_type(element));
    EXPECT_EQ(tile_element(tiles.type), element);
    EXPECT_EQ(tiles.block_elems, 1024);
    EXPECT_EQ(tiles.block_bytes, element == MxElement::kQ4_0 ? 576 : 1088);
    EXPECT_EQ(tiles.quantize, nullptr);
    const std::vector<float> x = normals_for(2048);
    std::vector<std::uint16_t> codes(2048);
    std::vector<std::uint8_t> scales(format.scale_bytes(2048));
    mx_quantize(format, x.data(), 2048, codes.data(), scales.data());
    std::vector<std::byte> bytes(2 * static_cast<std::size_t>(tiles.block_bytes));
    for (std::size_t t = 0; t < 2; ++t) {
      std::byte* tile = bytes.data() + t * static_cast<std::size_t>(tiles.block_bytes);
      mx_pack(format.bits(), codes.data() + t * 1024, 1024, tile);
      std::memcpy(tile + format.element_bytes(1024), scales.data() + t * 64, 64);
    }
    std::vector<float> expected(2048), values(2048);
    mx_dequantize(format, codes.data(), scales.data(), 2048, expected.data());
    tiles.dequantize(bytes.data(), values.data(), 2048);
    EXPECT_EQ(values, expected);
  }
  for (const Codec* each : all_codecs()) EXPECT_FALSE(tile_element(each->type)) << each->name;
  EXPECT_FALSE(tensor_type_from_name("Q4_0_TILE")) << "not a type to be chosen";
}

}  // namespace
}  // namespace dllm
