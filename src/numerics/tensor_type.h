#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dllm {

/// Element formats of weights, with GGML's type numbers, which GGUF files store. All are little endian.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kIQ1_M = 29,
  kBF16 = 30,
  kMXFP4 = 39,
  kNVFP4 = 40,
};

/// One block format: `block_elems` consecutive elements of a row are stored in `block_bytes` bytes.
struct Codec {
  TensorType type;
  std::string_view name;  ///< as in GGUF tools: "F32", "Q4_K", ...
  std::int64_t block_elems;
  std::int64_t block_bytes;
  /// Decodes exactly as GGML defines it. `count` is a multiple of block_elems; `src` need not be aligned.
  void (*dequantize)(const std::byte* src, float* dst, std::int64_t count);
  /// Round-to-nearest (scalar formats) or best-scale search (block formats), byte for byte what GGML's reference
  /// quantizers write without an importance matrix. Any input is safe, but a block with NaN or infinity has no
  /// meaningful values; `dst` need not be aligned. nullptr: decode only.
  void (*quantize)(const float* src, std::byte* dst, std::int64_t count);
  /// The same for one row of `count` elements, whose errors count as much as `weights` say (an importance matrix has
  /// such numbers per column), byte for byte as GGML. nullptr: the format does without.
  void (*quantize_weighted)(const float* src, const float* weights, std::byte* dst, std::int64_t count) = nullptr;

  bool is_block() const { return block_elems > 1; }
  /// Bytes of a row of `elems` elements; precondition: a multiple of block_elems.
  std::int64_t row_bytes(std::int64_t elems) const { return elems / block_elems * block_bytes; }
};

/// Every GGML format of this build, by number. See also mx_codecs() and tile_codecs().
std::span<const Codec* const> all_codecs();

/// The codec of a number read from a file; nullptr if this build does not know the number.
const Codec* find_codec(std::uint32_t ggml_type);

/// The codec of a type; never fails.
const Codec& codec(TensorType type);

/// By name, case-insensitively ("q4_k" = "Q4_K"); nullopt if unknown.
std::optional<TensorType> tensor_type_from_name(std::string_view name);

}  // namespace dllm
