#include "npu_core/device/format_costs.h"

#include <algorithm>

#include "npu_core/device/unit_costs.h"
#include "numerics/mx.h"

namespace dllm::npu {
namespace {

namespace units = unit_costs;

/// The defaults of matrix_window() (machine/matrix_unit.h), which chooses the window of a product by the same rule:
/// bits for the terms of a contraction (MachineConfig::contraction_bits), and bits of the two windows.
constexpr int kContractionBits = 15, kNarrowBits = 31, kWideBits = 63;

/// The element as the array multiplies it: an integer of `width` bits, or a significand whose products are added in
/// FP32.
struct Operand {
  bool fixed;
  int width;
};

Operand operand(const std::string& name) {
  const auto format = mx_format_from_name(name);
  if (!format || format->packed()) return {false, 11};  // unpacked to float16
  const MxElementInfo& info = mx_element(format->element);
  if (format->element == MxElement::kBF16 || format->element == MxElement::kF16 || format->element == MxElement::kE5M2)
    return {false, info.mantissa_bits + 1};
  return {true, info.magnitude_bits + 1};
}

UnitCost line(const UnitCost& a, double xa, const UnitCost& b, double xb, double x) {
  const double t = (x - xa) / (xb - xa);
  return {a.um2 + t * (b.um2 - a.um2), a.ns + t * (b.ns - a.ns), a.pj + t * (b.pj - a.pj)};
}

/// Multipliers grow with the product of both widths; what adds their products does not. The measured points of each
/// window lie on such a line to 8 %.
UnitCost element_cost(const Operand& a, const Operand& w) {
  const double product = a.width * w.width;
  const int bits = a.width + w.width - 2 + kContractionBits;
  if (!a.fixed || !w.fixed || bits > kWideBits) return line(units::float_pe_8, 64, units::float_pe_11, 121, product);
  return bits <= kNarrowBits ? line(units::int_pe_8_4, 32, units::int_pe_8_8, 64, product)
                             : line(units::int_pe_10_10, 100, units::int_pe_19_19, 361, product);
}

/// Of an element of a format with shared scales; nothing else is converted, only moved.
UnitCost block_cost(const std::string& name, const UnitCost& four, const UnitCost& eight) {
  const auto format = mx_format_from_name(name);
  if (!format || !format->scaled() || format->packed()) return {0, 0, 0};
  return line(four, 4, eight, 8, format->bits());
}

double stored_bytes(const std::string& name) {
  const auto format = mx_format_from_name(name);
  return format && !format->packed() ? format->average_bits() / 8 : 2;
}

}  // namespace

FormatCosts format_costs(const std::string& weight, const std::string& activation, const std::string& kv) {
  // Weights and KV take turns at the array. Its integers and its FP32 sums are separate adders; of each, the wider
  // product decides.
  UnitCost sums[2] = {{0, 0, 0}, {0, 0, 0}};
  const Operand input = operand(activation);
  for (const std::string* other : {&weight, &kv}) {
    const Operand matrix = operand(*other);
    const UnitCost cost = element_cost(input, matrix);
    UnitCost& most = sums[input.fixed && matrix.fixed ? 0 : 1];
    if (cost.um2 > most.um2) most = cost;
  }
  FormatCosts costs;
  costs.pe_um2 = sums[0].um2 + sums[1].um2;
  costs.pe_ns = std::max(sums[0].ns, sums[1].ns);
  // What does not take part in a product is assumed to be gated; nearly all products are with weights.
  costs.mac_ratio = element_cost(input, operand(weight)).pj / units::int_pe_8_4.pj;
  const UnitCost to_array = block_cost(activation, units::quantize_4, units::quantize_8);
  const UnitCost to_memory = block_cost(kv, units::quantize_4, units::quantize_8);
  costs.input_um2 = to_array.um2;
  costs.input_pj = to_array.pj;
  costs.store_um2 = to_memory.um2;
  costs.store_pj = to_memory.pj;
  costs.load_um2 = block_cost(kv, units::widen_4, units::widen_8).um2;
  costs.unpack_um2 = units::widen_4.um2 + units::bf16_multiply.um2;
  costs.matrix_bytes = std::max(stored_bytes(weight), stored_bytes(kv));
  return costs;
}

}  // namespace dllm::npu
