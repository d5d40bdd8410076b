#include "npu_core/machine/fixed_product.h"

#include <algorithm>

#include "base/to_size.h"
#include "npu_core/machine/matrix_kernels.h"

namespace dllm::npu {
namespace {

constexpr int kNone = FixedProduct::kNoExponent;

/// Elements aligned to the smallest exponent of their row (a) or column (w). If that takes more than `guard` bits, some
/// bits of the product are below every window and it must be added group by group: aligned elements are 0 there.
template <class T>
struct Aligned {
  std::vector<T> a, w;
  std::vector<int> a_floor, w_floor;         ///< [m], [columns]; kNone: only zeros
  std::vector<std::uint8_t> a_wide, w_wide;  ///< spread beyond `guard`
};

template <class T>
Aligned<T> align(const FixedProduct& p, int guard) {
  const auto m = to_size(p.m), k = to_size(p.k), n = to_size(p.n);
  const auto groups = to_size(p.groups()), columns = to_size(p.columns());
  const auto group = to_size(p.group), width = to_size(p.column_width);
  Aligned<T> r{std::vector<T>(m * k),        std::vector<T>(k * n),
               std::vector<int>(m, kNone),   std::vector<int>(columns, kNone),
               std::vector<std::uint8_t>(m), std::vector<std::uint8_t>(columns)};
  std::vector<int> top(std::max(m, columns), kNone);
  const auto widen = [](int& floor, int& ceiling, int e) {
    if (e <= kNone) return;
    floor = floor == kNone ? e : std::min(floor, e);
    ceiling = std::max(ceiling, e);
  };
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t g = 0; g < groups; ++g) widen(r.a_floor[i], top[i], p.ea[i * groups + g]);
    r.a_wide[i] = top[i] - r.a_floor[i] > guard;
    if (r.a_wide[i] != 0) continue;
    for (std::size_t j = 0; j < k; ++j) {
      const int e = p.ea[i * groups + j / group];
      r.a[i * k + j] = e <= kNone ? T{0} : static_cast<T>(T{p.a[i * k + j]} * (T{1} << (e - r.a_floor[i])));
    }
  }
  std::fill(top.begin(), top.end(), kNone);
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t c = 0; c < columns; ++c) widen(r.w_floor[c], top[c], p.ew[g * columns + c]);
  for (std::size_t c = 0; c < columns; ++c) r.w_wide[c] = top[c] - r.w_floor[c] > guard;
  for (std::size_t j = 0; j < k; ++j)
    for (std::size_t c = 0; c < columns; ++c) {
      const int e = p.ew[j / group * columns + c];
      if (e <= kNone || r.w_wide[c] != 0) continue;
      const T factor = T{1} << (e - r.w_floor[c]);
      for (std::size_t x = c * width; x < (c + 1) * width; ++x)
        r.w[j * n + x] = static_cast<T>(T{p.w[j * n + x]} * factor);
    }
  return r;
}

/// The largest group exponent of every column block, for one row.
void row_maxima(const FixedProduct& p, std::size_t i, std::vector<int>& maxima) {
  const auto groups = to_size(p.groups()), columns = to_size(p.columns());
  std::fill(maxima.begin(), maxima.end(), 2 * kNone);
  for (std::size_t g = 0; g < groups; ++g) {
    const int e = p.ea[i * groups + g];
    if (e <= kNone) continue;
    const std::int16_t* ew = p.ew.data() + g * columns;
    for (std::size_t c = 0; c < columns; ++c) maxima[c] = std::max(maxima[c], e + ew[c]);
  }
}

/// The definition, for one output.
std::int64_t add_groups(const FixedProduct& p, std::size_t i, std::size_t x, int reference, int guard) {
  const auto groups = to_size(p.groups()), columns = to_size(p.columns());
  const auto k = to_size(p.k), n = to_size(p.n), group = to_size(p.group);
  const std::size_t c = x / to_size(p.column_width);
  std::int64_t total = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const int e = p.ea[i * groups + g] + p.ew[g * columns + c];
    if (e <= kNone) continue;
    std::int64_t sum = 0;
    for (std::size_t j = g * group; j < (g + 1) * group; ++j) sum += std::int64_t{p.a[i * k + j]} * p.w[j * n + x];
    total += shift_right_sticky(sum * (std::int64_t{1} << guard), reference - e);
  }
  return total;
}

template <class T>
void add(const FixedProduct& p, Accumulator& acc, std::size_t first, std::size_t row_stride,
         void (*multiply)(int, int, int, const T*, const T*, T*)) {
  const auto n = to_size(p.n), columns = to_size(p.columns());
  const auto width = to_size(p.column_width);
  const Aligned<T> aligned = align<T>(p, acc.guard);
  std::vector<T> exact(to_size(p.m) * n);
  multiply(p.m, p.n, p.k, aligned.a.data(), aligned.w.data(), exact.data());
  std::vector<int> maxima(columns);
  for (std::size_t i = 0; i < to_size(p.m); ++i) {
    row_maxima(p, i, maxima);
    for (std::size_t x = 0; x < n; ++x) {
      const std::size_t out = first + i * row_stride + x, c = x / width;
      if (p.a_nan[i] != 0 || p.w_nan[x] != 0) acc.nan[out] = 1;
      if (maxima[c] <= kNone) continue;  // only zeros
      const int reference = std::max(acc.reference[out], maxima[c]);
      // Before the first sum the value is 0, so its shift does not matter.
      const std::int64_t kept = shift_right_sticky(acc.value[out], reference - acc.reference[out]);
      // A whole block of w may be zero where a's exponent is largest: then the floor may be below the window although
      // no term is; the slow path handles that as well.
      const int lift = aligned.a_floor[i] + aligned.w_floor[c] - (reference - acc.guard);
      const bool lossless = lift >= 0 && aligned.a_wide[i] == 0 && aligned.w_wide[c] == 0;
      const std::int64_t added = lossless ? std::int64_t{exact[i * n + x]} * (std::int64_t{1} << lift)
                                          : add_groups(p, i, x, reference, acc.guard);
      acc.value[out] = kept + added;
      acc.reference[out] = reference;
    }
  }
}

}  // namespace

void add_fixed_product(const FixedProduct& product, Accumulator& accumulator, std::size_t first,
                       std::size_t row_stride) {
  if (product.narrow != 0)
    add<std::int32_t>(product, accumulator, first, row_stride, multiply_i32);
  else
    add<std::int64_t>(product, accumulator, first, row_stride, multiply_i64);
}

}  // namespace dllm::npu
