// The MX codecs against an independent implementation of the OCP specification in Python (testdata/mx_reference.py), by
// CRC-32: every code under every scale, and a stream of blocks that both sides generate. DLLM_MX_BLOCKS=1000000
// compares a million blocks instead of 20,000.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "numerics/mx.h"

namespace dllm {
namespace {

/// zlib's polynomial.
class Crc32 {
 public:
  void add(const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i)
      crc_ = kTable[(crc_ ^ static_cast<const unsigned char*>(data)[i]) & 255] ^ crc_ >> 8;
  }
  std::uint32_t value() const { return ~crc_; }

 private:
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] & 1) != 0 ? 0xedb88320u ^ table[i] >> 1 : table[i] >> 1;
    }
    return table;
  }();
  std::uint32_t crc_ = ~0u;
};

/// The same blocks as stream() of mx_reference.py.
class BlockStream {
 public:
  void next(std::array<std::uint32_t, 32>& block) {
    const std::uint32_t head = draw(), kind = head & 7, base = head >> 3 & 255, spread = head >> 11 & 15;
    for (std::uint32_t& bits : block) {
      const std::uint32_t word = draw();
      if (kind == 0) {
        bits = word;
        continue;
      }
      const std::uint32_t step = (word >> 23 & 255) % (spread + 1);
      bits = (word & 0x807fffffu) | std::min(254u, base > step ? base - step : 0u) << 23;
      if (kind == 1) bits &= 0xfff80000u;
      if (kind == 2 && (word & 0x700) == 0) bits &= 0x80000000u;
      if (kind == 3 && (head >> 15 & 1) != 0) bits &= 0x80000000u;
    }
    if (kind == 4) block[head >> 16 & 31] = std::min(254u, base) << 23;
  }

 private:
  std::uint32_t draw() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    return state_ ^= state_ << 5;
  }
  std::uint32_t state_ = 2463534242u;
};

struct Digests {
  const char* name;
  std::uint32_t decoded, encoded, encoded_million;
};
constexpr std::uint32_t kInput = 0xb00356db, kInputMillion = 0xb325a983;
constexpr Digests kDigests[] = {
    {"mxint8", 0x8cd169d7, 0xca8c5b53, 0x8e250772},     {"mxint4", 0x2dd24c82, 0x205ac571, 0x7835d13e},
    {"mxfp4_e2m1", 0xd7809232, 0x94f5b036, 0x9fbd0f49}, {"mxfp6_e2m3", 0xe9e5ed73, 0x789a4803, 0x874816c7},
    {"mxfp6_e3m2", 0x9455fcc0, 0xef8f415a, 0xb03e623f}, {"mxfp8_e4m3", 0x90ef5162, 0x01193e97, 0xff8ed969},
    {"mxfp8_e5m2", 0x06857cb0, 0x4fecb9c0, 0x1ec934be},
};

class MxReference : public testing::TestWithParam<Digests> {
 protected:
  MxFormat format() const { return *mx_format_from_name(GetParam().name); }
};

TEST_P(MxReference, EveryCodeUnderEveryScale) {
  const std::size_t codes = std::size_t{1} << format().bits();
  std::vector<std::uint16_t> block(std::max<std::size_t>(codes, 32));
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::uint16_t>(i % codes);
  std::vector<float> values(block.size());
  Crc32 crc;
  for (int scale = 0; scale < 256; ++scale) {
    const std::vector<std::uint8_t> scales(block.size() / 32, static_cast<std::uint8_t>(scale));
    mx_dequantize(format(), block.data(), scales.data(), block.size(), values.data());
    for (std::size_t i = 0; i < codes; ++i) {
      const std::uint32_t bits = std::isnan(values[i]) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(values[i]);
      crc.add(&bits, sizeof bits);
    }
  }
  EXPECT_EQ(crc.value(), GetParam().decoded);
}

TEST_P(MxReference, BlocksOfEveryKind) {
  const char* asked = std::getenv("DLLM_MX_BLOCKS");
  const bool million = asked != nullptr && std::string(asked) == "1000000";
  const std::size_t count = million ? 1000000 : 20000;
  BlockStream stream;
  Crc32 input, output;
  std::array<std::uint32_t, 32> words{};
  std::array<float, 32> x{};
  std::vector<std::uint16_t> codes(32 * count);
  std::vector<std::uint8_t> scales(count);
  for (std::size_t b = 0; b < count; ++b) {
    stream.next(words);
    input.add(words.data(), sizeof words);
    std::memcpy(x.data(), words.data(), sizeof words);
    mx_quantize(format(), x.data(), 32, codes.data() + 32 * b, scales.data() + b);
  }
  output.add(codes.data(), codes.size() * sizeof codes[0]);
  output.add(scales.data(), scales.size());
  EXPECT_EQ(input.value(), million ? kInputMillion : kInput) << "the two sides made different blocks";
  EXPECT_EQ(output.value(), million ? GetParam().encoded_million : GetParam().encoded);
}

INSTANTIATE_TEST_SUITE_P(Formats, MxReference, testing::ValuesIn(kDigests),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace dllm
