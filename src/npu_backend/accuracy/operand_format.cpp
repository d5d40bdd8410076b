#include "npu_backend/accuracy/operand_format.h"

#include <algorithm>
#include <array>

#include "npu_backend/accuracy/lane_kernel.h"
#include "npu_backend/accuracy/vector_unit.h"

namespace dllm::npu::accuracy {
namespace {

struct GgmlName {
  std::string_view name;
  TensorType type;
};
constexpr GgmlName kGgmlNames[] = {
    {"f32", TensorType::kF32}, {"f16", TensorType::kF16}, {"q4_0", TensorType::kQ4_0}, {"q8_0", TensorType::kQ8_0}};

/// The integers of an element's codes.
const std::array<float, 256>& fixed_values(MxElement element) {
  static const auto tables = [] {
    std::array<std::array<float, 256>, kMxElementCount> all{};
    for (std::size_t e = 0; e < all.size(); ++e)
      for (std::uint32_t code = 0; code < 1u << mx_element(static_cast<MxElement>(e)).bits; ++code)
        all[e][code] = static_cast<float>(mx_fixed(static_cast<MxElement>(e), code));
    return all;
  }();
  return tables[static_cast<std::size_t>(element)];
}

void through_ggml(TensorType type, std::span<const float> x, float* out) {
  const Codec& format = codec(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(format.row_bytes(static_cast<std::int64_t>(x.size()))));
  format.quantize(x.data(), bytes.data(), static_cast<std::int64_t>(x.size()));
  format.dequantize(bytes.data(), out, static_cast<std::int64_t>(x.size()));
}

void through_mx(const MxFormat& format, std::span<const float> x, float* out) {
  thread_local std::vector<std::uint16_t> codes;
  thread_local std::vector<std::uint8_t> scales;
  codes.resize(x.size());
  scales.resize(format.scale_bytes(x.size()));
  mx_quantize(format, x.data(), x.size(), codes.data(), scales.data());
  mx_dequantize(format, codes.data(), scales.data(), x.size(), out);
}

}  // namespace

std::optional<OperandFormat> OperandFormat::from_name(std::string_view name) {
  OperandFormat format;
  for (const GgmlName& known : kGgmlNames)
    if (name == known.name) format.ggml_ = known.type;
  if (format.ggml_) return format;
  const auto mx = mx_format_from_name(name);
  if (!mx) return std::nullopt;
  format.mx_ = *mx;
  return format;
}

MxFormat OperandFormat::machine_format() const {
  if (!ggml_) return mx_;
  switch (*ggml_) {
    case TensorType::kF16:
      return {MxElement::kF16, MxRule::kOcp, 1};
    case TensorType::kQ4_0:
      return {MxElement::kQ4_0, MxRule::kOcp, 32};
    case TensorType::kQ8_0:
      return {MxElement::kQ8_0, MxRule::kOcp, 32};
    default:
      return {};
  }
}

std::string OperandFormat::name() const {
  if (!ggml_) return mx_format_name(mx_);
  return std::string(std::ranges::find(kGgmlNames, *ggml_, &GgmlName::type)->name);
}

int OperandFormat::block() const { return ggml_ ? static_cast<int>(codec(*ggml_).block_elems) : mx_.block; }

double OperandFormat::bits() const {
  if (!ggml_) return mx_.average_bits();
  const Codec& format = codec(*ggml_);
  return 8.0 * static_cast<double>(format.block_bytes) / static_cast<double>(format.block_elems);
}

void quantize(const OperandFormat& format, bool integers, std::span<const float> x, Operand& out) {
  out.lanes.resize(x.size());
  out.exponents.clear();
  if (!integers) {
    std::ranges::copy(x, out.lanes.begin());
    return round_through(format, out.lanes);
  }
  const MxFormat mx = format.machine_format();
  out.exponents.resize(x.size() / static_cast<std::size_t>(mx.block));
  lane_kernel().integers(LaneFormatInfo(mx), x.data(), static_cast<std::int64_t>(x.size()), out.lanes.data(),
                         out.exponents.data());
}

void lay_integers(const MxFormat& mx, std::span<const std::uint16_t> codes, std::span<const std::uint8_t> scales,
                  Operand& out) {
  const auto block = static_cast<std::size_t>(mx.block);
  const std::array<float, 256>& values = fixed_values(mx.element);
  out.lanes.resize(codes.size());
  out.exponents.resize(scales.size());
  for (std::size_t b = 0; b < scales.size(); ++b) {
    bool zero = true;
    for (std::size_t i = b * block; i < (b + 1) * block; ++i) {
      out.lanes[i] = values[codes[i]];
      zero = zero && out.lanes[i] == 0.0f;
    }
    const auto exponent = static_cast<std::int16_t>(scales[b] - kMxScaleBias);
    out.exponents[b] = scales[b] == kMxScaleNan ? kNanExponent : zero ? kZeroExponent : exponent;
  }
}

void round_through(const OperandFormat& format, std::span<float> x) {
  if (format.ggml() == TensorType::kF32) return;
  if (format.ggml() == TensorType::kF16) return round_lanes(VectorPrecision::kF16, x);
  if (format == OperandFormat()) return round_lanes(VectorPrecision::kBF16, x);
  if (format.ggml()) {
    through_ggml(*format.ggml(), x, x.data());
    if (format.packed()) round_lanes(VectorPrecision::kF16, x);
  } else {
    through_mx(format.machine_format(), x, x.data());
  }
}

}  // namespace dllm::npu::accuracy
