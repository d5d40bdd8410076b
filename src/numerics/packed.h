#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/mx.h"

// Q4_0 and Q8_0 as the NPU stores them: the codes of a block in the order of its elements, and the float16 scales
// apart. GGML interleaves both, and its Q4_0 puts elements j and j + 16 into one byte.

namespace dllm {

inline constexpr int kPackedBlock = 32;

/// A weight as the NPU's look-up gives it: the code's integer times the scale, one rounding to float16. NaN is 0x7e00.
std::uint16_t unpack_f16(MxElement element, std::uint16_t code, std::uint16_t scale);

/// Codes and scale of one of GGML's blocks, which need not be aligned; kPackedBlock codes.
void read_packed_block(MxElement element, const std::byte* block, std::uint16_t* codes, std::uint16_t& scale);
/// Bytes of such a block: 18 or 34.
std::size_t packed_block_bytes(MxElement element);

/// `n` is a multiple of kPackedBlock; `scales` has two bytes per block, little endian.
void quantize_packed(MxElement element, const float* x, std::size_t n, std::uint16_t* codes, std::uint8_t* scales);
/// Values of unpack_f16().
void dequantize_packed(MxElement element, const std::uint16_t* codes, const std::uint8_t* scales, std::size_t n,
                       float* x);

}  // namespace dllm
