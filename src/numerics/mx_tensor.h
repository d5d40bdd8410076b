#pragma once

#include <optional>
#include <span>

#include "numerics/mx.h"
#include "numerics/tensor_type.h"

namespace dllm {

/// Microscaling formats as tensor types of GGUF files: each block of a row is its scale byte and then its elements, as
/// mx_pack() writes them. The numbers are this project's own: kMxTypeBase | mx_format_number(format), "MX" in the upper
/// half. They are far above GGML's, so that programs which only know GGML's types refuse the file.
inline constexpr std::uint32_t kMxTypeBase = 0x4d580000;

/// Precondition: `format` is one of the MX formats. Floating-point elements have one rule under two names; both have
/// one type.
TensorType mx_tensor_type(const MxFormat& format);
/// The format of a type; nullopt for GGML's types.
std::optional<MxFormat> mx_format_of(TensorType type);

/// Every MX codec, by ascending number: seven elements, blocks of 8, 16 and 32, the rules of integers.
std::span<const Codec* const> mx_codecs();

/// A type by MX name, in upper or lower case, with or without block and rule ("MXINT4", "mxint4:16:plena"); "mxfp8" is
/// mxfp8_e4m3. "mxfp4" is not among them: it names GGML's type.
std::optional<TensorType> mx_type_from_name(std::string_view name);

/// Codes and scale of one block in a file's bytes, which need not be aligned; format.block codes.
void mx_read_block(const MxFormat& format, const std::byte* block, std::uint16_t* codes, std::uint8_t& scale);
void mx_write_block(const MxFormat& format, const std::uint16_t* codes, std::uint8_t scale, std::byte* block);

}  // namespace dllm
