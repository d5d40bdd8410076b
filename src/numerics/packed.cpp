#include "numerics/packed.h"

#include <array>
#include <cstring>

#include "numerics/half.h"
#include "numerics/mx_tensor.h"

namespace dllm {
namespace {

const Codec& packed_codec(MxElement element) {
  return codec(element == MxElement::kQ4_0 ? TensorType::kQ4_0 : TensorType::kQ8_0);
}

constexpr std::uint32_t kTileTypeBase = kMxTypeBase | 0x1000;
constexpr std::int64_t kTileElements = std::int64_t{kTileEdge} * kTileEdge;

constexpr std::int64_t tile_bytes(int bits) { return kTileElements * bits / 8 + 2 * kTileEdge; }

template <MxElement kElement>
void decode_tiles(const std::byte* src, float* dst, std::int64_t count) {
  constexpr MxFormat kFormat{kElement, MxRule::kOcp, kPackedBlock};
  std::array<std::uint16_t, kTileElements> codes;
  std::array<std::uint8_t, 2 * kTileEdge> scales;
  const std::size_t code_bytes = kFormat.element_bytes(codes.size());
  for (std::int64_t i = 0; i < count; i += kTileElements, src += code_bytes + scales.size()) {
    mx_unpack(kFormat.bits(), src, codes.size(), codes.data());
    std::memcpy(scales.data(), src + code_bytes, scales.size());
    dequantize_packed(kElement, codes.data(), scales.data(), codes.size(), dst + i);
  }
}

constexpr TensorType tile_number(MxElement element) {
  return static_cast<TensorType>(kTileTypeBase | 5u << 4 | static_cast<std::uint32_t>(element));
}

constexpr Codec kQ4Tiles{tile_number(MxElement::kQ4_0),  "Q4_0_TILE", kTileElements, tile_bytes(4),
                         decode_tiles<MxElement::kQ4_0>, nullptr};
constexpr Codec kQ8Tiles{tile_number(MxElement::kQ8_0),  "Q8_0_TILE", kTileElements, tile_bytes(8),
                         decode_tiles<MxElement::kQ8_0>, nullptr};
constexpr std::array<const Codec*, 2> kTileCodecs = {&kQ4Tiles, &kQ8Tiles};

}  // namespace

TensorType tile_type(MxElement element) { return tile_number(element); }

std::optional<MxElement> tile_element(TensorType type) {
  for (const MxElement element : {MxElement::kQ4_0, MxElement::kQ8_0})
    if (type == tile_number(element)) return element;
  return std::nullopt;
}

std::span<const Codec* const> tile_codecs() { return kTileCodecs; }

std::size_t packed_block_bytes(MxElement element) {
  return static_cast<std::size_t>(packed_codec(element).block_bytes);
}

std::uint16_t unpack_f16(MxElement element, std::uint16_t code, std::uint16_t scale) {
  const int integer = element == MxElement::kQ4_0 ? static_cast<int>(code) - 8 : static_cast<std::int8_t>(code);
  const float value = f16_to_f32(scale) * static_cast<float>(integer);
  return value != value ? std::uint16_t{0x7e00} : f32_to_f16(value);
}

void read_packed_block(MxElement element, const std::byte* block, std::uint16_t* codes, std::uint16_t& scale) {
  std::memcpy(&scale, block, 2);
  block += 2;
  if (element == MxElement::kQ8_0) return mx_unpack(8, block, kPackedBlock, codes);
  for (int i = 0; i < kPackedBlock / 2; ++i) {
    const auto byte = static_cast<std::uint16_t>(block[i]);
    codes[i] = byte & 15;
    codes[i + kPackedBlock / 2] = static_cast<std::uint16_t>(byte >> 4);
  }
}

void write_packed_block(MxElement element, const std::uint16_t* codes, std::uint16_t scale, std::byte* block) {
  std::memcpy(block, &scale, 2);
  block += 2;
  if (element == MxElement::kQ8_0) return mx_pack(8, codes, kPackedBlock, block);
  for (int i = 0; i < kPackedBlock / 2; ++i)
    block[i] = static_cast<std::byte>(codes[i] | codes[i + kPackedBlock / 2] << 4);
}

void quantize_packed(MxElement element, const float* x, std::size_t n, std::uint16_t* codes, std::uint8_t* scales) {
  std::array<std::byte, 34> block;
  for (std::size_t i = 0; i < n; i += kPackedBlock, scales += 2) {
    packed_codec(element).quantize(x + i, block.data(), kPackedBlock);
    std::uint16_t scale = 0;
    read_packed_block(element, block.data(), codes + i, scale);
    std::memcpy(scales, &scale, 2);
  }
}

void dequantize_packed(MxElement element, const std::uint16_t* codes, const std::uint8_t* scales, std::size_t n,
                       float* x) {
  for (std::size_t i = 0; i < n; i += kPackedBlock, scales += 2) {
    std::uint16_t scale = 0;
    std::memcpy(&scale, scales, 2);
    for (std::size_t j = i; j < i + kPackedBlock; ++j) x[j] = f16_to_f32(unpack_f16(element, codes[j], scale));
  }
}

}  // namespace dllm
