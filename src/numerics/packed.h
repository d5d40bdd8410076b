#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "numerics/mx.h"
#include "numerics/tensor_type.h"

// Q4_0 and Q8_0 as the NPU stores them: the codes of a block in the order of its elements, and the float16 scales
// apart. GGML interleaves both, and its Q4_0 puts elements j and j + 16 into one byte.

namespace dllm {

inline constexpr int kPackedBlock = 32;

/// A weight as the NPU's look-up gives it: the code's integer times the scale, one rounding to float16. NaN is 0x7e00.
std::uint16_t unpack_f16(MxElement element, std::uint16_t code, std::uint16_t scale);

/// Codes and scale of one of GGML's blocks, which need not be aligned; kPackedBlock codes.
void read_packed_block(MxElement element, const std::byte* block, std::uint16_t* codes, std::uint16_t& scale);
void write_packed_block(MxElement element, const std::uint16_t* codes, std::uint16_t scale, std::byte* block);
/// Bytes of such a block: 18 or 34.
std::size_t packed_block_bytes(MxElement element);

/// `n` is a multiple of kPackedBlock; `scales` has two bytes per block, little endian.
void quantize_packed(MxElement element, const float* x, std::size_t n, std::uint16_t* codes, std::uint8_t* scales);
/// Values of unpack_f16().
void dequantize_packed(MxElement element, const std::uint16_t* codes, const std::uint8_t* scales, std::size_t n,
                       float* x);

/// Tiles as tensor types of GGUF files: 32 rows of 32 elements, the codes of all rows (as mx_pack() writes them) and
/// then their scales. A tensor is a list of tiles, of shape [1024, tiles]; which weight is where depends on the device
/// for which the file was written. The numbers are this project's own, next to those of mx_tensor.h, so that other
/// programs refuse the file. Values are those of unpack_f16(); these codecs do not encode.
inline constexpr int kTileEdge = 32;
TensorType tile_type(MxElement element);
/// kQ4_0 or kQ8_0; nullopt for all other types.
std::optional<MxElement> tile_element(TensorType type);
std::span<const Codec* const> tile_codecs();

}  // namespace dllm
