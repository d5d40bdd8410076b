#pragma once

#include "cpu/kernels/floats-inl.h"
#include "cpu/kernels/half_parts-inl.h"
#include "cpu/kernels/kernel_set.h"

// BF16 and F16 weights in the arithmetic `super` (docs/design/arithmetic.md) without tiles. In the scalar set this
// defines what tiles must compute. Panels are those of packed floats; only the order of additions differs, and an F16
// weight is multiplied as the sum of two BF16 numbers, so where there are no tiles, `exact` is faster.
//
// A panel times all rows, in blocks of K: those of F16 weights are first split into floats, 32 KiB in scratch. Between
// blocks sums are kept in `out`.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// Rows of a tile of steps: three accumulators each, of as many registers as a panel.
constexpr int kStepRows = kFloatPanels > 1 ? 6 : 2;
/// Rows of F16 whose three products are computed in one loop: six accumulators each.
constexpr int kRowsAtOnce = kFloatPanels > 1 ? 4 : 1;
constexpr std::int64_t kStepBlock = 256;  ///< K of a block
constexpr std::int64_t kPlaneBytes = kStepBlock * kPanel * 4;

/// One step of 32 k: two chains, of even and of odd k, which are added to each other and then to the sum.
template <class Weights, int kRows>
inline void add_step(const std::uint8_t* w, const float* x, F32 (&sum)[kRows]) {
  F32 even[kRows], odd[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) even[r] = odd[r] = set1(0.f);
  for (int pair = 0; pair < kBf16Step / 2; ++pair, w += Weights::kPairBytes, x += Weights::kRowPair) {
    const F32 low = Weights::template at<0>(w), high = Weights::template at<1>(w);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      even[r] = fma(set1(x[r]), low, even[r]);
      odd[r] = fma(set1(x[kRowGroup + r]), high, odd[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = add(sum[r], add(even[r], odd[r]));
}

/// BF16 weights, and rows in kRounded.
struct Bf16Steps {
  static constexpr RowForm kForm = RowForm::kRounded;
  static const std::uint8_t* block(const std::uint8_t* w, std::int64_t, std::uint8_t*) { return w; }
  template <int kRows>
  static void add_to(const std::uint8_t* w, const float* x, std::int64_t, F32 (&sum)[kRows]) {
    add_step<BF16Weights>(w, x, sum);
  }
};

/// F16 weights, and rows in kSplit. A block is two planes of floats: high parts, then rests.
struct F16Steps {
  static constexpr RowForm kForm = RowForm::kSplit;
  static const std::uint8_t* block(const std::uint8_t* w, std::int64_t kc, std::uint8_t* scratch) {
    auto* const floats = reinterpret_cast<float*>(scratch);
    for (std::int64_t i = 0; i < kc * kPanel; i += kPanel) {
      const HalfParts parts = half_parts(reinterpret_cast<const std::uint16_t*>(w) + i);
      store(floats + i, as_f32(parts.high));
      store(floats + kStepBlock * kPanel + i, parts.rest);
    }
    return scratch;
  }
  /// The three products of few rows in one loop, so that there are enough chains to hide the latency of FMA.
  template <int kRows>
  static void add_products(const std::uint8_t* w, const float* x, std::int64_t rest, F32 (&sum)[kRows]) {
    F32 chains[3][2][kRows];
#pragma GCC unroll 6
    for (int i = 0; i < 6; ++i)
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) chains[i / 2][i % 2][r] = set1(0.f);
    const auto* high = reinterpret_cast<const float*>(w);
    const auto* low = reinterpret_cast<const float*>(w + kPlaneBytes);
    for (int pair = 0; pair < kBf16Step / 2; ++pair)
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd, high += kPanel, low += kPanel, x += kRowGroup) {
        const F32 a = load(low), b = load(high);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const F32 first = set1(x[r]);
          chains[0][odd][r] = fma(first, a, chains[0][odd][r]);
          chains[1][odd][r] = fma(first, b, chains[1][odd][r]);
          chains[2][odd][r] = fma(set1(x[rest + r]), b, chains[2][odd][r]);
        }
      }
#pragma GCC unroll 3
    for (int product = 0; product < 3; ++product)
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r] = add(sum[r], add(chains[product][0][r], chains[product][1][r]));
  }
  /// `rest` leads from the first part of a value of the rows to its second.
  template <int kRows>
  static void add_to(const std::uint8_t* w, const float* x, std::int64_t rest, F32 (&sum)[kRows]) {
    if constexpr (kRows <= kRowsAtOnce) {
      add_products(w, x, rest, sum);
    } else {
      add_step<F32Weights>(w + kPlaneBytes, x, sum);
      add_step<F32Weights>(w, x, sum);
      add_step<F32Weights>(w, x + rest, sum);
    }
  }
};

/// A block of K of one panel, and where its products go.
struct StepBlock {
  const std::uint8_t* weights;
  std::int64_t step_bytes, steps, rest, out_stride;
  int columns;
  bool first;
  const float* bias;  ///< of the panel; set for the last block
};

/// A block times rows that begin at `x`.
template <class Steps, int kRows>
[[gnu::noinline]] void step_rows(const StepBlock& block, const float* x, float* out) {
  F32 sum[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = block.first ? set1(0.f) : load_n(out + r * block.out_stride, block.columns);
  const std::uint8_t* w = block.weights;
  for (std::int64_t step = 0; step < block.steps; ++step, w += block.step_bytes, x += kBf16Step * kRowGroup)
    Steps::add_to(w, x, block.rest, sum);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (block.bias != nullptr) sum[r] = add(sum[r], load_n(block.bias, block.columns));
    store_n(out + r * block.out_stride, sum[r], block.columns);
  }
}

template <class Steps, int kRows = kStepRows>
inline void step_rows_of(int rows, const StepBlock& block, const float* x, float* out) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return step_rows<Steps, kRows>(block, x, out);
    step_rows_of<Steps, kRows - 1>(rows, block, x, out);
  }
}

template <class Steps>
void float_steps_of(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, std::uint8_t* scratch) {
  const std::int64_t begin = args.grouped.first_row, end = begin + args.rows;
  const std::int64_t panel_step = kBf16Step * kPanel * 2;
  StepBlock block;
  block.step_bytes = Steps::kForm == RowForm::kSplit ? kBf16Step * kPanel * 4 : panel_step;
  block.rest = row_group_stride(args.k), block.out_stride = args.out_stride;
  for (std::int64_t n = n_begin; n < n_end; n += kPanel) {
    block.columns = static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel);
    const std::uint8_t* const w = args.panels.data + n / kPanel * args.panels.layout->bytes;
    for (std::int64_t k0 = 0; k0 < args.k; k0 += kStepBlock) {
      const std::int64_t kc = args.k - k0 < kStepBlock ? args.k - k0 : kStepBlock;
      block.weights = Steps::block(w + k0 / kBf16Step * panel_step, kc, scratch);
      block.steps = kc / kBf16Step, block.first = k0 == 0;
      block.bias = k0 + kc == args.k && args.bias != nullptr ? args.bias + n : nullptr;
      for (std::int64_t row = begin, count; row < end; row += count) {
        const std::int64_t lane = row % kRowGroup;
        count = end - row < kRowGroup - lane ? end - row : kRowGroup - lane;
        if (count > kStepRows) count = kStepRows;
        const float* const group = args.grouped.groups + row / kRowGroup * group_stride(Steps::kForm, args.k);
        step_rows_of<Steps>(static_cast<int>(count), block, group + lane + k0 * kRowGroup,
                            args.out + (row - begin) * args.out_stride + (n - args.out_origin));
      }
    }
  }
}

/// Outputs [n_begin, n_end) of a product in steps.
void float_steps(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  auto* const bytes = static_cast<std::uint8_t*>(scratch);
  if (args.panels.format->type == TensorType::kF16) return float_steps_of<F16Steps>(args, n_begin, n_end, bytes);
  float_steps_of<Bf16Steps>(args, n_begin, n_end, bytes);
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
