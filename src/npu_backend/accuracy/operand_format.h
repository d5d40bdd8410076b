#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/mx.h"
#include "numerics/tensor_type.h"

namespace dllm::npu::accuracy {

/// The format of a product's operand: an MX format or bf16 (numerics/mx.h), or one of GGML's "f32", "f16", "q4_0",
/// "q8_0". Values of the last two are unpacked to float16, with one rounding.
class OperandFormat {
 public:
  OperandFormat() = default;  ///< bf16
  static std::optional<OperandFormat> from_name(std::string_view name);

  std::string name() const;
  /// Elements are integers times a power of two, so products are added in windows of integers. Products of other
  /// formats (floats, E5M2 with its infinities, GGML's blocks with their float16 scales) are added in float32.
  bool fixed() const { return !ggml_ && mx_.scaled() && mx_.element != MxElement::kE5M2; }
  /// Elements that share a scale; 1 without one.
  int block() const;
  /// The same format of the NPU; bf16 in the place of f32, which it does not have.
  MxFormat machine_format() const;
  /// Whether the functional machine supports it: everything but f32.
  bool on_machine() const { return ggml_ != TensorType::kF32; }
  /// Q4_0 and Q8_0: for weights, on the machine.
  bool packed() const { return machine_format().packed(); }
  std::optional<TensorType> ggml() const { return ggml_; }
  double bits() const;  ///< per element, with its share of the scale

  friend bool operator==(const OperandFormat&, const OperandFormat&) = default;

 private:
  MxFormat mx_{};
  std::optional<TensorType> ggml_{};
};

/// Exponents of blocks that add nothing, and of blocks that turn their sums into NaN. Sums of two exponents remain
/// distinct from those of numbers, which are in [-254, 254].
inline constexpr std::int16_t kZeroExponent = -10000, kNanExponent = 30000;
inline constexpr std::int32_t kLowestNumber = -5000, kHighestNumber = 5000;

/// Lanes in a format: integers, to be multiplied by 2^(exponent of their block - fraction), which float represents
/// exactly (at most 18 bits); or the values themselves, without exponents.
struct Operand {
  std::vector<float> lanes;
  std::vector<std::int16_t> exponents;  ///< by block
};

/// Rounds `x` into the format, as integers (if fixed()) or as values. `x.size()` is a multiple of the block.
void quantize(const OperandFormat& format, bool integers, std::span<const float> x, Operand& out);
/// The same as values: replaces `x` by its rounded values.
void round_through(const OperandFormat& format, std::span<float> x);
/// Codes of a fixed() format as integers.
void lay_integers(const MxFormat& mx, std::span<const std::uint16_t> codes, std::span<const std::uint8_t> scales,
                  Operand& out);

}  // namespace dllm::npu::accuracy
