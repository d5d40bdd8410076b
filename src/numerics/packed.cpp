#include "numerics/packed.h"

#include <array>
#include <cstring>

#include "numerics/half.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

const Codec& packed_codec(MxElement element) {
  return codec(element == MxElement::kQ4_0 ? TensorType::kQ4_0 : TensorType::kQ8_0);
}

}  // namespace

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
