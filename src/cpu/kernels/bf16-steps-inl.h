// No include guard: compiled once per instruction set, after floats-inl.h.
//
// BF16 weights in the arithmetic `super` (docs/design/arithmetic.md) without tiles. In the scalar set this defines what
// tiles must compute. Weights and rows are those of packed floats; only the order of additions differs, so where there
// are no tiles, `exact` is faster.

namespace dllm::cpu::DLLM_ISA {
namespace {

/// Rows of a tile of bf16_steps(): three accumulators each, of as many registers as a panel.
constexpr int kStepRows = kFloatPanels > 1 ? 6 : 2;

/// One panel times rows that begin at `x`: in each step of 32 k two chains, of even and of odd k, which are added to
/// each other and then to the sum.
template <int kRows>
[[gnu::noinline]] void bf16_step_rows(const std::uint8_t* w, const float* x, std::int64_t k, F32* sums) {
  F32 sum[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sum[r] = set1(0.f);
  for (std::int64_t step = 0; step < k / kBf16Step; ++step) {
    F32 even[kRows], odd[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) even[r] = odd[r] = set1(0.f);
    for (int pair = 0; pair < kBf16Step / 2; ++pair, w += BF16Weights::kPairBytes, x += BF16Weights::kRowPair) {
      const F32 low = BF16Weights::at<0>(w), high = BF16Weights::at<1>(w);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        even[r] = fma(set1(x[r]), low, even[r]);
        odd[r] = fma(set1(x[kRowGroup + r]), high, odd[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sum[r] = add(sum[r], add(even[r], odd[r]));
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) sums[r] = sum[r];
}

template <int kRows = kStepRows>
inline void bf16_step_rows_of(int rows, const std::uint8_t* w, const float* x, std::int64_t k, F32* sums) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return bf16_step_rows<kRows>(w, x, k, sums);
    bf16_step_rows_of<kRows - 1>(rows, w, x, k, sums);
  }
}

/// Outputs [n_begin, n_end), with rows in kRounded.
void bf16_steps(const LinearArgs& args, std::int64_t n_begin, std::int64_t n_end) {
  const std::int64_t begin = args.grouped.first_row, end = begin + args.rows;
  for (std::int64_t n = n_begin; n < n_end; n += kPanel) {
    const int columns = static_cast<int>(n_end - n < kPanel ? n_end - n : kPanel);
    const std::uint8_t* const w = args.panels.data + n / kPanel * args.panels.layout->bytes;
    const F32 bias = args.bias != nullptr ? load_n(args.bias + n, columns) : set1(0.f);
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t lane = row % kRowGroup;
      std::int64_t count = end - row < kRowGroup - lane ? end - row : kRowGroup - lane;
      if (count > kStepRows) count = kStepRows;
      F32 sums[kStepRows];
      bf16_step_rows_of(static_cast<int>(count), w,
                        args.grouped.groups + row / kRowGroup * row_group_stride(args.k) + lane, args.k, sums);
      for (int r = 0; r < count; ++r, ++row)
        store_n(args.out + (row - begin) * args.out_stride + (n - args.out_origin),
                args.bias != nullptr ? add(sums[r], bias) : sums[r], columns);
    }
  }
}

}  // namespace
}  // namespace dllm::cpu::DLLM_ISA
