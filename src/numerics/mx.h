#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// Microscaling (MX) formats as accelerators store them: a block of elements and one E8M0 scale, in two separate
// streams. Sources: OCP Microscaling Formats 1.0; PLENA's block formats. The GGUF type MXFP4 (mxfp4.cpp) stores MXFP4
// differently: scales and elements are interleaved, and rounding is GGML's.
//
// The same type also names what else the NPU's memory holds: bfloat16, float16, and GGML's Q4_0 and Q8_0, whose blocks
// have float16 scales.

namespace dllm {

/// Element of a block. kBF16 and kF16 have no scale and no block: they mean "not quantized" where a format is expected.
/// Codes of kQ4_0 are 0 to 15 (value minus 8), those of kQ8_0 two's complement.
enum class MxElement : std::uint8_t { kInt4, kInt8, kE2M1, kE2M3, kE3M2, kE4M3, kE5M2, kBF16, kF16, kQ4_0, kQ8_0 };
inline constexpr int kMxElementCount = 7;  ///< with an E8M0 scale: the first ones
inline constexpr int kMxNamedCount = 11;   ///< all

/// How a block's shared exponent follows from its largest magnitude M, and which integer codes exist.
enum class MxRule : std::uint8_t {
  kOcp,    ///< floor(log2 M) - emax of the element; integers: LSB 2^-(bits-2) of the scale, -(2^(b-1)-1)..2^(b-1)-1
  kPlena,  ///< integers: ceil(log2 M), LSB 2^-(bits-1), -2^(b-1)..2^(b-1)-1; floating point: as kOcp
  kPlenaSymmetric,  ///< kPlena without the code -2^(b-1), as sign-magnitude hardware
};
inline constexpr int kMxRuleCount = 3;

struct MxElementInfo {
  std::string_view name;  ///< "mxint8", "mxfp8_e4m3", "bf16"
  int bits;               ///< stored width
  int exponent_bits;      ///< 0: integer
  int mantissa_bits;      ///< stored fraction bits; integers: bits - 1
  int bias;
  int emax;            ///< exponent of the largest element
  double max;          ///< largest finite element
  int magnitude_bits;  ///< |element| in units of its smallest step is at most 2^magnitude_bits
};
const MxElementInfo& mx_element(MxElement element);

inline constexpr int kMxScaleBias = 127;
inline constexpr std::uint8_t kMxScaleNan = 255;

struct MxFormat {
  MxElement element = MxElement::kBF16;
  MxRule rule = MxRule::kOcp;
  int block = 1;  ///< elements per scale: 8, 16 or 32; 1 for kBF16 and kF16

  bool scaled() const { return element != MxElement::kBF16 && element != MxElement::kF16; }
  /// GGML's blocks: 32 elements with a float16 scale. The NPU unpacks them to float16 when it loads them.
  bool packed() const { return element == MxElement::kQ4_0 || element == MxElement::kQ8_0; }
  /// The code of zero.
  std::uint16_t zero() const { return element == MxElement::kQ4_0 ? 8 : 0; }
  int bits() const { return mx_element(element).bits; }
  /// An element with fixed-point value q has the value q * 2^-fraction * scale. Not for packed() formats.
  int fraction() const;
  /// Bytes of n elements without their scales; precondition: n * bits() is a multiple of 8.
  std::size_t element_bytes(std::size_t n) const { return n * static_cast<std::size_t>(bits()) / 8; }
  /// Scale bytes of n elements; precondition: n is a multiple of block.
  std::size_t scale_bytes(std::size_t n) const {
    return scaled() ? n / static_cast<std::size_t>(block) * (packed() ? 2 : 1) : 0;
  }
  /// Per element, with its share of the scale.
  double average_bits() const { return bits() + 8.0 * static_cast<double>(scale_bytes(32)) / 32; }
  friend bool operator==(const MxFormat&, const MxFormat&) = default;
};

/// "mxint8:32:ocp", "mxfp8_e4m3:8:plena", "mxint4:32:plena-symmetric", "bf16", "fp16", "q4_0", "q8_0". Block and rule
/// of MX formats may be left out (32, ocp).
std::optional<MxFormat> mx_format_from_name(std::string_view name);
std::string mx_format_name(const MxFormat& format);
/// What the NPU's format registers hold: element | log2(block) << 4 | rule << 8.
std::uint32_t mx_format_number(const MxFormat& format);
std::optional<MxFormat> mx_format_from_number(std::uint32_t number);

/// 2^(scale - 127); NaN for 255. Subnormal float for 0.
float mx_scale_value(std::uint8_t scale);

/// Fixed-point value of a code (value = this * 2^-fraction). Infinities and NaNs of E4M3 and E5M2 give 0: ask
/// mx_is_special(). Only for MX formats.
std::int64_t mx_fixed(MxElement element, std::uint32_t code);
bool mx_is_special(MxElement element, std::uint32_t code);

/// Round-to-nearest-even with saturation. `n` is a multiple of the block. A block with a NaN or an infinity gets the
/// NaN scale; a block of zeros gets scale 0. Codes of kBF16 and kF16 are their 16 bits; they leave `scales` alone.
/// packed() formats are quantized as GGML does, and their scales are float16, little endian.
void mx_quantize(const MxFormat& format, const float* x, std::size_t n, std::uint16_t* codes, std::uint8_t* scales);

/// Exact: every product of scale and element is a float (subnormal ones included). Values of packed() formats are
/// rounded to float16, as unpack_f16() does.
void mx_dequantize(const MxFormat& format, const std::uint16_t* codes, const std::uint8_t* scales, std::size_t n,
                   float* x);

/// Codes as a little-endian bit stream: element i occupies bits [i * width, (i + 1) * width).
/// Precondition: n * width is a multiple of 8.
void mx_pack(int width, const std::uint16_t* codes, std::size_t n, std::byte* bytes);
void mx_unpack(int width, const std::byte* bytes, std::size_t n, std::uint16_t* codes);

}  // namespace dllm
