#pragma once

#include <algorithm>

#include "npu/device/device.h"

namespace dllm::npu {

/// Vector work on one row of a value, slab after slab, counted from the compiler's loops.
struct RowKernel {
  double accesses = 0;  ///< of vector SRAM per slab: unchained operands, and results
  double vector = 0;    ///< vector instructions per slab
  double integer = 0;   ///< pointer instructions per slab; the front end executes one per cycle
  double scalar = 0;    ///< cycles of scalar instructions per row
  double fixed = 0;     ///< latency that a row waits for once, shared by interleaved rows
};

/// V_MUL x x, V_RED_SUM, V_MUL by the factor, V_MUL by the gain. Two accesses for x x, one for the squares, three for
/// each of the two products minus the chained operand; the sum is chained.
inline RowKernel norm_kernel(const Device::Latency& t) {
  return {.accesses = 7,
          .vector = 4,
          .integer = 5,
          .scalar = static_cast<double>(2 * t.scalar_fp + 2 * t.scalar_special),
          .fixed = static_cast<double>(t.vector_sum)};
}
/// The same after h = a + b, whose result is squared directly.
inline RowKernel residual_norm_kernel(const Device::Latency& t) {
  RowKernel k = norm_kernel(t);
  k.accesses += 1;
  k.vector += 1;
  k.integer += 1;
  k.fixed += static_cast<double>(t.vector_add);
  return k;
}
inline RowKernel add_kernel() { return {.accesses = 3, .vector = 1, .integer = 3, .scalar = 0, .fixed = 0}; }
/// Shift, two products, sum: x twice, cos, sin, four results, one operand of the sum.
inline RowKernel rope_kernel() { return {.accesses = 9, .vector = 4, .integer = 2, .scalar = 0, .fixed = 0}; }
/// For heads whose halves are slabs: six instructions for two slabs.
inline RowKernel wide_rope_kernel() { return {.accesses = 7.5, .vector = 3, .integer = 3, .scalar = 0, .fixed = 0}; }
/// Negate, e^x, 1 + x, reciprocal, two products: gate twice, up, six results.
inline RowKernel swiglu_kernel() { return {.accesses = 9, .vector = 6, .integer = 2, .scalar = 0, .fixed = 0}; }

/// Cycles of `rows` rows of `slabs` slabs when nothing else runs; `together` rows are interleaved. Instructions start
/// in order, one per cycle if each takes its predecessor's result.
inline double row_cycles(const Device& device, const RowKernel& k, double rows, double slabs, double together) {
  const auto ports = static_cast<double>(device.sram.vector_ports);
  const double issue = std::max(k.integer * slabs, (k.integer * slabs + k.vector * slabs + k.scalar) / 2);
  const double chain = k.vector * slabs + k.scalar + k.fixed / together;
  return rows * std::max({k.accesses * slabs / ports, issue, chain});
}

}  // namespace dllm::npu
