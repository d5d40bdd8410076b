#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "numerics/block_codec.h"
#include "numerics/mx.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

using Bytes = std::vector<std::byte>;

Bytes read_fixture(const std::string& name) {
  std::ifstream file(DLLM_SOURCE_DIR "/src/numerics/testdata/" + name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(begin, begin + text.size());
}

std::vector<float> as_floats(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<float> gaussian(std::size_t count, float sigma = 1.0f) {
  std::mt19937 random(20251121);
  std::normal_distribution<float> normal(0.0f, sigma);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Bytes quantize(const Codec& codec, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Bytes bytes(static_cast<std::size_t>(codec.row_bytes(count)));
  codec.quantize(values.data(), bytes.data(), count);
  return bytes;
}

std::vector<float> dequantize(const Codec& codec, std::span<const std::byte> bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size()) / codec.block_bytes * codec.block_elems;
  std::vector<float> values(static_cast<std::size_t>(count));
  codec.dequantize(bytes.data(), values.data(), count);
  return values;
}

double rmse(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

class EachCodec : public testing::TestWithParam<const Codec*> {};

INSTANTIATE_TEST_SUITE_P(Codecs, EachCodec, testing::ValuesIn(all_codecs().begin(), all_codecs().end()),
                         [](const auto& each) { return std::string(each.param->name); });

/// Those that write.
class EachEncoder : public EachCodec {};

std::vector<const Codec*> encoders() {
  std::vector<const Codec*> all;
  for (const Codec* each : all_codecs())
    if (each->quantize != nullptr) all.push_back(each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Codecs, EachEncoder, testing::ValuesIn(encoders()),
                         [](const auto& each) { return std::string(each.param->name); });

TEST_P(EachCodec, DecodesBitForBitAsGguf) {
  const Codec& codec = *GetParam();
  Bytes fixture = read_fixture("decode_" + std::string(codec.name) + ".bin");
  if (codec.type == TensorType::kF32) {  // no fixture: a copy
    fixture = read_fixture("encode_input.bin");
    const Bytes copy = fixture;
    fixture.insert(fixture.end(), copy.begin(), copy.end());
  }
  const std::size_t per_block =
      static_cast<std::size_t>(codec.block_bytes) + 4 * static_cast<std::size_t>(codec.block_elems);
  const std::size_t blocks = fixture.size() / per_block * static_cast<std::size_t>(codec.block_bytes);
  ASSERT_GT(blocks, 0u);
  const std::vector<float> values = dequantize(codec, std::span(fixture).first(blocks));
  const std::vector<float> expected = as_floats(std::span(fixture).subspan(blocks));
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i])) << i;
  Bytes shifted(blocks + 1);
  std::copy_n(fixture.begin(), blocks, shifted.begin() + 1);
  EXPECT_EQ(dequantize(codec, std::span(shifted).subspan(1)), values) << "from unaligned memory";
}

TEST_P(EachEncoder, EncodesBitForBitAsGgml) {
  const Codec& codec = *GetParam();
  const Bytes bytes = quantize(codec, as_floats(read_fixture("encode_input.bin")));
  const Bytes expected =
      read_fixture(codec.type == TensorType::kF32 ? "encode_input.bin" : "encode_" + std::string(codec.name) + ".bin");
  ASSERT_EQ(bytes.size(), expected.size());
  const auto block = static_cast<std::size_t>(codec.block_bytes);
  for (std::size_t i = 0; i < bytes.size(); i += block)
    ASSERT_TRUE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                           bytes.begin() + static_cast<std::ptrdiff_t>(i + block),
                           expected.begin() + static_cast<std::ptrdiff_t>(i)))
        << "block " << i / block;
}

TEST_P(EachEncoder, ReadsAndWritesUnalignedMemory) {
  const Codec& codec = *GetParam();
  const std::vector<float> values = gaussian(512);
  const Bytes aligned = quantize(codec, values);
  Bytes shifted(aligned.size() + 1);
  codec.quantize(values.data(), shifted.data() + 1, 512);
  EXPECT_TRUE(std::equal(aligned.begin(), aligned.end(), shifted.begin() + 1));
  EXPECT_EQ(dequantize(codec, aligned), dequantize(codec, std::span(shifted).subspan(1)));
}

TEST_P(EachEncoder, BlocksAreIndependent) {
  const Codec& codec = *GetParam();
  const std::vector<float> values = gaussian(512);
  const Bytes whole = quantize(codec, values);
  Bytes pieces;
  for (std::int64_t i = 0; i < 512; i += codec.block_elems) {
    const Bytes piece = quantize(codec, {values.begin() + i, values.begin() + i + codec.block_elems});
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(whole, pieces);
}

TEST_P(EachCodec, ZeroElementsTouchNothing) {
  const float x = 3;
  std::byte bytes{0xa5};
  const bool writes = GetParam()->quantize != nullptr;
  if (writes) GetParam()->quantize(&x, &bytes, 0);
  EXPECT_EQ(bytes, std::byte{0xa5});
  float y = 7;
  GetParam()->dequantize(&bytes, &y, 0);
  EXPECT_EQ(y, 7);
  // The sanitizer builds also check that null pointers are not dereferenced.
  if (writes) GetParam()->quantize(nullptr, nullptr, 0);
  GetParam()->dequantize(nullptr, nullptr, 0);
}

/// The values are not specified; the sanitizer builds check that there is no undefined behaviour.
TEST_P(EachCodec, SurvivesExtremeInput) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  const float extremes[] = {kInf,    -kInf,  std::numeric_limits<float>::quiet_NaN(),
                            kMax,    -kMax,  std::numeric_limits<float>::denorm_min(),
                            -1e-39f, 1e-38f, 0.0f,
                            -0.0f,   1.0f};
  for (const float first : extremes)
    for (const float second : extremes) {
      std::vector<float> values(256, first);
      for (std::size_t i = 0; i < values.size(); i += 3) values[i] = second;
      if (GetParam()->quantize != nullptr) dequantize(*GetParam(), quantize(*GetParam(), values));
    }
  std::mt19937 random(7);
  Bytes noise(static_cast<std::size_t>(64 * GetParam()->block_bytes));
  for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
  dequantize(*GetParam(), noise);
}

/// Root mean square error on a standard normal: that of GGML's own quantizer on 2^21 draws (quantize_row_*_ref of ggml
/// 0.25.3, x86-64; Q2_K, Q3_K, IQ4 and NVFP4: ggml_quantize_chunk of 0.20.2), and how much of that error a second
/// quantization of the result may add: none where the scale is computed from an element that the grid represents
/// exactly.
struct Quality {
  TensorType type;
  double ggml_rmse;
  double again;
  double small_rmse = 0;  ///< of numbers of 0.02, in parts of that, where scales have few bits for them; 0: the same
};

class Quantizer : public testing::TestWithParam<Quality> {};

INSTANTIATE_TEST_SUITE_P(
    Codecs, Quantizer,
    testing::Values(Quality{TensorType::kQ4_0, 0.0858932, 0.0}, Quality{TensorType::kQ4_1, 0.0782283, 0.0},
                    Quality{TensorType::kQ5_0, 0.0426749, 0.0}, Quality{TensorType::kQ5_1, 0.0378155, 0.0},
                    Quality{TensorType::kQ8_0, 0.00535214, 0.0}, Quality{TensorType::kQ4_K, 0.0713418, 0.01},
                    Quality{TensorType::kQ5_K, 0.0360994, 0.12}, Quality{TensorType::kQ6_K, 0.0177266, 0.0},
                    Quality{TensorType::kMXFP4, 0.114969, 0.0}, Quality{TensorType::kQ2_K, 0.296536, 0.05},
                    Quality{TensorType::kQ3_K, 0.150827, 0.25}, Quality{TensorType::kIQ4_NL, 0.0761174, 0.1},
                    Quality{TensorType::kIQ4_XS, 0.0766931, 0.1},
                    Quality{TensorType::kNVFP4, 0.0950875, 0.0, 0.103269}),
    [](const auto& each) { return std::string(codec(each.param.type).name); });

TEST_P(Quantizer, IsAsGoodAsGgml) {
  const Codec& codec = dllm::codec(GetParam().type);
  for (const float sigma : {1.0f, 0.02f}) {
    const std::vector<float> values = gaussian(1 << 16, sigma);
    const double error = rmse(dequantize(codec, quantize(codec, values)), values) / double{sigma};
    const double ggml = sigma < 1 && GetParam().small_rmse > 0 ? GetParam().small_rmse : GetParam().ggml_rmse;
    EXPECT_LT(error, 1.02 * ggml);
    EXPECT_GT(error, 0.97 * ggml) << "better than possible: is the test right?";
  }
}

TEST_P(Quantizer, QuantizingAgainAddsLittle) {
  const Codec& codec = dllm::codec(GetParam().type);
  const std::vector<float> values = gaussian(1 << 14);
  const std::vector<float> once = dequantize(codec, quantize(codec, values));
  const std::vector<float> twice = dequantize(codec, quantize(codec, once));
  EXPECT_LE(rmse(twice, once), GetParam().again * rmse(once, values));
}

TEST(Q8_0, RoundsAsRoundf) {
  // 31 free elements per block; the first fixes the scale at 1, so that each element equals its level.
  const Codec& q8_0 = codec(TensorType::kQ8_0);
  std::vector<float> values(32);
  std::uint32_t bits = 0;
  const std::uint32_t end = std::bit_cast<std::uint32_t>(127.0f);
  while (bits < end) {
    values[0] = 127.0f;
    for (std::size_t i = 1; i < 32; ++i, bits += 4099) values[i] = std::bit_cast<float>(std::min(bits, end));
    // Also every tie and its neighbours.
    for (std::size_t i = 1; i < 32; i += 4) {
      const float tie = std::floor(values[i]) + 0.5f;
      if (tie > 126.0f) continue;
      values[i] = tie;
      values[i + 1] = std::nextafter(tie, 0.0f);
      values[i + 2] = -tie;
    }
    const std::vector<float> levels = dequantize(q8_0, quantize(q8_0, values));
    for (std::size_t i = 0; i < 32; ++i) ASSERT_EQ(levels[i], std::round(values[i])) << values[i];
  }
}

/// Lists of groups, whole: 1024 random blocks of each type meet every group, and FNV-1a over the floats that the
/// package gguf decodes from them is recorded (make_fixtures.py).
TEST(Iq, EveryGroupIsThatOfGguf) {
  std::ifstream file(DLLM_SOURCE_DIR "/src/numerics/testdata/iq_digests.txt");
  std::string name, digest;
  int types = 0;
  for (; file >> name >> digest; ++types) {
    const auto type = tensor_type_from_name(name);
    ASSERT_TRUE(type) << name;
    const auto size = static_cast<std::size_t>(codec(*type).block_bytes);
    Bytes blocks(1024 * size);
    std::uint64_t state = size;
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(splitmix64(state) & 255);
    const std::size_t exponent = name == "IQ1_M" ? 55 : 1;  // neither infinity nor NaN
    for (std::size_t at = exponent; at < blocks.size(); at += size) blocks[at] &= std::byte{0xbf};
    const std::vector<float> values = dequantize(codec(*type), blocks);
    EXPECT_EQ(fmt::format("{:016x}", Fnv1a().add(std::as_bytes(std::span(values))).value()), digest) << name;
  }
  EXPECT_EQ(types, 7);
}

/// Of every code, the sign and NaN's among them, beside the format's table (mx.h).
TEST(NVFP4, ScalesAreE4M3WithoutASign) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    std::vector<std::byte> block(36);
    block[0] = static_cast<std::byte>(code);
    for (std::size_t pair = 0; pair < 8; ++pair) block[4 + pair] = static_cast<std::byte>(0x72);
    const std::uint32_t exponent = code >> 3 & 15, mantissa = code & 7;
    double scale = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, static_cast<int>(exponent) - 10);
    if (code == 0x7f) scale = 0;  // as in GGML; 0xff is 480 there
    const std::vector<float> values = dequantize(codec(TensorType::kNVFP4), block);
    EXPECT_EQ(static_cast<double>(values[0]), scale) << code;
    EXPECT_EQ(static_cast<double>(values[8]), 6 * scale) << code;
  }
}

TEST(E2m1, ValuesOfBlocksAreThoseOfTheElement) {
  for (std::uint32_t code = 0; code < 16; ++code)
    EXPECT_EQ(kE2m1Doubled[code], static_cast<float>(mx_fixed(MxElement::kE2M1, code))) << code;
  EXPECT_EQ((MxFormat{MxElement::kE2M1, MxRule::kOcp, 32}.fraction()), 1) << "in halves";
}

TEST(CodecRegistry, FindsEveryFormatByNumberAndName) {
  std::uint32_t previous = 0;
  for (const Codec* each : all_codecs()) {
    const auto number = static_cast<std::uint32_t>(each->type);
    EXPECT_TRUE(number > previous || number == 0) << "sorted by number";
    previous = number;
    EXPECT_EQ(find_codec(number), each);
    EXPECT_EQ(&codec(each->type), each);
    EXPECT_EQ(tensor_type_from_name(each->name), each->type);
    EXPECT_EQ(each->row_bytes(512), 512 / each->block_elems * each->block_bytes);
    EXPECT_EQ(each->is_block(), each->block_elems > 1);
  }
  EXPECT_EQ(all_codecs().size(), 24u);
  EXPECT_EQ(find_codec(4), nullptr);  // Q4_2, removed from GGML
  EXPECT_EQ(find_codec(0xffffffffu), nullptr);
  EXPECT_EQ(tensor_type_from_name("q4_k"), TensorType::kQ4_K);
  EXPECT_EQ(tensor_type_from_name("bf16"), TensorType::kBF16);
  EXPECT_EQ(tensor_type_from_name("Q4_K_M"), std::nullopt);
  EXPECT_EQ(tensor_type_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace dllm
