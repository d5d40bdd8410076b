#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <variant>

#include "base/integers.h"
#include "graph/graph.h"
#include "npu_compiler/analytic/activation.h"
#include "npu_compiler/lowering/slices.h"
#include "npu_core/device/device.h"

namespace dllm::npu {

/// Vector work on one row of a value, slab after slab, counted from the compiler's loops.
struct RowKernel {
  double accesses = 0;  ///< of vector SRAM per slab: unchained operands, and results
  double vector = 0;    ///< vector instructions per slab
  double integer = 0;   ///< pointer instructions per slab; the front end executes one per cycle
  double scalar = 0;    ///< cycles of scalar instructions per row
  double fixed = 0;     ///< latency that a row waits for once, shared by interleaved rows
};

/// V_MUL x x, V_RED_SUM, V_MUL by the factor, V_MUL by the gain; the sum is chained.
/// `near`: slabs are less than 2^18 elements apart. Then the step is an immediate, and a step back takes two
/// instructions, for both pointers.
inline RowKernel norm_kernel(const LatencyKeys& t, bool near) {
  return {.accesses = kNormAccesses,
          .vector = 4,
          .integer = near ? 7.0 : 5.0,
          .scalar = static_cast<double>(2 * t.scalar_fp + 2 * t.scalar_special),
          .fixed = static_cast<double>(t.vector_sum)};
}
/// The same after h = a + b, whose result is squared directly.
inline RowKernel residual_norm_kernel(const LatencyKeys& t, bool near) {
  RowKernel k = norm_kernel(t, near);
  k.accesses = kResidualNormAccesses;
  k.vector += 1;
  k.integer += 1;
  k.fixed += static_cast<double>(t.vector_add);
  return k;
}
inline RowKernel add_kernel() { return {.accesses = kAddAccesses, .vector = 1, .integer = 3, .scalar = 0, .fixed = 0}; }
inline RowKernel rope_kernel() {
  return {.accesses = kRopeAccesses, .vector = 4, .integer = 2, .scalar = 0, .fixed = 0};
}
/// Heads whose columns rotate only in part: shifts and sines of two directions, one row at a time.
inline RowKernel part_rope_kernel(const LatencyKeys& t) {
  return {.accesses = 14, .vector = 7, .integer = 5, .scalar = 0, .fixed = static_cast<double>(t.vector_add) - 1};
}
/// For heads whose halves are slabs: six instructions for two slabs.
inline RowKernel wide_rope_kernel() { return {.accesses = 7.5, .vector = 3, .integer = 3, .scalar = 0, .fixed = 0}; }
inline RowKernel hadamard_kernel() { return {.accesses = 2, .vector = 1, .integer = 2, .scalar = 0, .fixed = 0}; }
inline RowKernel swiglu_kernel(const LatencyKeys& t) {
  constexpr double kInstructions = 6;
  const auto chain = static_cast<double>(2 * t.vector_add + t.vector_exp + t.vector_reci + 2 * t.vector_mul);
  return {.accesses = kSwigluAccesses,
          .vector = kInstructions,
          .integer = 2,
          .scalar = 0,
          .fixed = std::max(0.0, chain - kInstructions)};
}

/// Any activation, slab after slab; `gated`: times another row. Each instruction takes its predecessor's result, so
/// that a slab waits for all latencies.
inline RowKernel activation_kernel(const LatencyKeys& t, Activation activation, bool gated) {
  const double gate = gated ? 1 : 0, count = activation_instructions(activation) + gate;
  if (activation == Activation::kRelu)
    return {.accesses = 2 + 2 * gate, .vector = count, .integer = 2 + gate, .scalar = 0, .fixed = 0};
  const bool erf = activation == Activation::kGelu, form = erf || activation == Activation::kGeluTanh;
  const double products = gate + (erf ? 5 : form ? 4 : activation == Activation::kTanh ? 2 : 1);
  const double minima = erf ? 1 : 0, sums = count - products - minima - 2;
  const double chain = products * static_cast<double>(t.vector_mul) + sums * static_cast<double>(t.vector_add) +
                       minima * static_cast<double>(t.vector_max) + static_cast<double>(t.vector_exp + t.vector_reci);
  // One access for each result, one for each operand that is not the result before it.
  const double operands = gate + (erf ? 6 : form ? 4 : activation == Activation::kTanh ? 1 : 2);
  return {.accesses = count + operands,
          .vector = count,
          .integer = 2 + gate,
          .scalar = 0,
          .fixed = std::max(0.0, chain - count)};
}
/// Products of a value with numbers: the region's, the factor, or both.
inline int scale_products(const op::Scale& o) {
  return o.factor != 1.f && (o.context != kNoId || o.canvas != kNoId) ? 2 : 1;
}
/// So many products with a number; the second takes the first's result.
inline RowKernel scale_kernel(double products) {
  return {.accesses = 1 + products, .vector = products, .integer = 2, .scalar = 0, .fixed = products - 1};
}
/// z <- c tanh(z / c), slab after slab.
inline RowKernel softcap_kernel(const LatencyKeys& t) {
  constexpr double kInstructions = 7;
  const auto chain = static_cast<double>(3 * t.vector_mul + 2 * t.vector_add + t.vector_exp + t.vector_reci);
  return {.accesses = kInstructions + 1,
          .vector = kInstructions,
          .integer = 1,
          .scalar = 0,
          .fixed = std::max(0.0, chain - kInstructions)};
}
/// Whether lanes are FP16; squares are then summed of x 2^-6 (norm_shrink()).
inline bool half_lanes(const Device& device) { return device.numerics.activation == "fp16"; }
/// Sum, x - mean, squares and their sum, factor, gain, bias: two rows interleaved, three passes. `half`: half_lanes().
inline RowKernel layer_norm_kernel(const LatencyKeys& t, bool half) {
  return {.accesses = half ? 19.0 : 17.0,
          .vector = half ? 9.0 : 7.0,
          .integer = 6,
          .scalar = static_cast<double>(3 * t.scalar_fp + 2 * t.scalar_special),
          .fixed = static_cast<double>(2 * t.vector_sum)};
}

/// An operator that processes rows of `slabs` slabs alone, when nothing else runs, `together` of them interleaved;
/// nullopt: another one.
struct RowOperator {
  RowKernel kernel;
  double together = 1;
};
inline std::optional<RowOperator> row_operator(const Device& device, const dllm::Op& any, double slabs, bool near) {
  const LatencyKeys& t = device.latency;
  if (std::holds_alternative<op::RmsNorm>(any)) return RowOperator{norm_kernel(t, near), 4};
  if (std::holds_alternative<op::LayerNorm>(any)) return RowOperator{layer_norm_kernel(t, half_lanes(device)), 2};
  if (const auto* o = std::get_if<op::Glu>(&any)) {
    const bool swiglu = o->activation == Activation::kSilu && o->up != kNoId;
    RowKernel kernel = swiglu ? swiglu_kernel(t) : activation_kernel(t, o->activation, o->up != kNoId);
    kernel.fixed *= slabs;
    return RowOperator{kernel, 1};
  }
  if (std::holds_alternative<op::Hadamard>(any)) return RowOperator{hadamard_kernel(), 1};
  if (std::holds_alternative<op::Add>(any)) return RowOperator{add_kernel(), 1};
  if (const auto* o = std::get_if<op::Scale>(&any)) return RowOperator{scale_kernel(scale_products(*o)), 1};
  return std::nullopt;
}

/// Cycles of `rows` rows of `slabs` slabs when nothing else runs; `together` rows are interleaved. Instructions start
/// in order, one per cycle if each takes its predecessor's result.
inline double row_cycles(const Device& device, const RowKernel& k, double rows, double slabs, double together) {
  const auto ports = static_cast<double>(device.sram.vector_ports);
  const double issue = std::max(k.integer * slabs, (k.integer * slabs + k.vector * slabs + k.scalar) / 2);
  const double chain = k.vector * slabs + k.scalar + k.fixed / together;
  return rows * std::max({k.accesses * slabs / ports, issue, chain});
}

/// Soft caps of all slabs of logits: issued after a slab's product, so that the array waits for what it has not queued.
inline double softcap_cycles(const Device& device, std::int64_t scored, std::int64_t vocab, double lead) {
  const auto rows = static_cast<double>(round_up(scored, device.array.blen));
  const auto slabs = static_cast<double>(ceil_div(vocab, device.array.vlen));
  return slabs * std::max(0.0, row_cycles(device, softcap_kernel(device.latency), rows, 1, 1) - lead);
}

/// One block of rows of a product, with rows of other work between its column blocks.
struct ShadowedBlock {
  std::int64_t columns = 0, k_tiles = 0;
  double array = 0;       ///< cycles of its tiles
  double queued = 0;      ///< cycles of tiles that the array's queue holds (queue_lead())
  std::int64_t rows = 0;  ///< of the other work
  bool fresh = true;      ///< its rows are results of the block before, so that it does not begin at once
};
/// Cycles of the block if the front end limits them: it issues the slices of work between column blocks, in order, and
/// slices begin only when the rows of the block before have been written. While operands and write-outs are moved at
/// once, the array, whose instructions are older, takes two ports: of a column block of T cycles, on average the
/// write-out's BLEN cycles times the share of T in which tiles run. T is the slice's cycles and these. No tile is
/// issued during a slice, so that an array whose tiles are short empties its queue and waits for the rest.
inline double slices_cycles(const Device& device, const RowKernel& k, double slabs, const ShadowedBlock& block) {
  constexpr double kSlice = 30;  // cycles to save and set registers
  const auto side = static_cast<double>(device.array.blen);
  const Slices plan = make_slices(block.columns, block.k_tiles, block.rows, block.fresh);
  const auto columns = static_cast<double>(block.columns), k_tiles = static_cast<double>(block.k_tiles),
             each = static_cast<double>(plan.each), slices = static_cast<double>(plan.count()),
             between = static_cast<double>(plan.between);
  const double together = in_pairs(plan.each, static_cast<std::int64_t>(slabs)) ? 2 : 1;
  const double column = block.array / columns;
  const double work = kSlice + each * row_cycles(device, k, 1, slabs, together);
  const double slice = 2 * between * k_tiles + work;
  const double both = device.sram.vector_ports > 2 ? 0 : between * side * between * column;
  const double period = (slice + std::sqrt(slice * slice + 4 * both)) / 2;
  const double starved = between * column + std::max(0.0, work - block.queued);
  return (columns - slices * between) * column + slices * std::max(starved, period);
}

/// Cycles that an array waits while the front end issues SwiGLU of a slab's block, row after row, behind the block's
/// column blocks.
inline double behind_block_wait(const Device& device, std::int64_t columns, double queued) {
  constexpr double kPointers = 10;
  const std::int64_t rows = device.array.blen;
  const auto parts = static_cast<double>(pieces_behind(columns, rows));
  const double part =
      kPointers + row_cycles(device, swiglu_kernel(device.latency), static_cast<double>(rows) / parts, 1, 1);
  return parts * std::max(0.0, part - queued);
}

/// Norms of heads: accesses per row and slab.
inline constexpr double kHeadNormAccesses = 12;
/// All heads of a row at once, four rows interleaved for the sum, then two by two for the factor and the products. An
/// instruction that takes no operand from a pipe reads two rows and writes one: for so long it has the ports for
/// itself. The second row of the first pair waits for its sum, the next four rows for the last result.
inline double head_norm_cycles(const Device& device, double rows) {
  constexpr double kRows = 4, kPairs = 2, kProducts = 4;  // at once; products of a pair
  const LatencyKeys& t = device.latency;
  const auto ports = static_cast<double>(device.sram.vector_ports);
  const double own = std::ceil(3 / ports);
  const double sums = std::max(static_cast<double>(t.vector_mul + t.vector_sum) + own - 1, kRows * own);
  const double pair = static_cast<double>(t.vector_mul + t.vector_add + 2 * t.vector_reci) + kProducts * own - 1;
  return std::max(sums + kPairs * pair + own - 1, kRows * kHeadNormAccesses / ports) / kRows * rows;
}

}  // namespace dllm::npu
