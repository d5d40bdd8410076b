#include "quant/hessian.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "base/to_size.h"
#include "base/try.h"
#include "quant/row_sums.h"

namespace dllm {
namespace {

constexpr std::int64_t kTile = 128;      ///< sums of add_differences() that are kept in the first-level cache at once
constexpr std::int64_t kRowsOfTask = 8;  ///< rows that one thread factors at once
constexpr std::int64_t kFinished = 16;   ///< finished rows that stay in the second-level cache for all rows of a task
constexpr std::int64_t kColumnTile = 1024;  ///< of a row that stay in the first-level cache for some finished rows

void round_to(std::span<const double> from, std::span<float> to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = static_cast<float>(from[i]);
}

/// Elements [begin, end) of a row of the Cholesky factor, from those before and from the finished rows [begin, end).
/// Inner products are in eight sums, whatever the number of rows that share a call.
void eliminate(const Triangle& factor, std::int64_t begin, std::int64_t end, double* row) {
  for (std::int64_t k = begin; k < end; k += kSumRows) {
    const std::int64_t count = std::min<std::int64_t>(kSumRows, end - k), common = k / kSumLanes * kSumLanes;
    const float* rows[kSumRows];
    for (std::int64_t r = 0; r < kSumRows; ++r) rows[r] = factor.row(k + std::min(r, count - 1)).data();
    double all[kSumRows][kSumLanes];
    sum_products(row, rows, common, all);
    for (std::int64_t r = 0; r < count; ++r) {
      double(&sums)[kSumLanes] = all[r];
      for (std::int64_t i = common; i < k + r; ++i) sums[i % kSumLanes] += row[i] * static_cast<double>(rows[r][i]);
      const double product = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
      row[k + r] = (row[k + r] - product) / static_cast<double>(rows[r][k + r]);
    }
  }
}

/// Adds what the finished rows [begin, end) of the inverse contribute to a row of it. `factor`: that row of the factor;
/// `last`: the inverse of its diagonal element.
void substitute(const Triangle& inverse, std::span<const float> factor, double last, std::int64_t begin,
                std::int64_t end, double* row) {
  const auto part = [&](std::int64_t k, std::int64_t from, std::int64_t to) {  // of rows k to k + 3, columns [from, to)
    const std::int64_t count = std::min<std::int64_t>(kSumRows, end - k);
    const float* rows[kSumRows];
    double shares[kSumRows];
    for (std::int64_t r = 0; r < count; ++r) {
      rows[r] = inverse.row(k + r).data() + from;
      shares[r] = -last * static_cast<double>(factor[to_size(k + r)]);
    }
    const std::int64_t common = std::min(to, k + 1);
    if (from < common) add_rows(row + from, std::span(shares).first(to_size(count)), rows, common - from);
    for (std::int64_t r = 1; r < count; ++r)
      for (std::int64_t j = std::max(from, k + 1); j < std::min(to, k + r + 1); ++j)
        row[j] += shares[r] * static_cast<double>(rows[r][j - from]);
  };
  for (std::int64_t from = 0; from < end; from += kColumnTile)
    for (std::int64_t k = begin; k < end; k += kSumRows) part(k, from, std::min(from + kColumnTile, end));
}

/// Computes the n rows of a triangle in ascending order, each in n float64 numbers: rows.begin(i, row) sets them,
/// rows.combine(i, begin, end, row) combines them with the finished rows [begin, end), and finish(i, row) ends row i.
/// Rows of a block are combined with the rows before the block in parallel.
template <class Rows, class Finish>
Expected<void> for_rows(std::int64_t n, ThreadPool& pool, const Rows& rows, const Finish& finish) {
  const std::int64_t size = std::clamp<std::int64_t>(kRowsOfTask * pool.size(), 4 * kRowsOfTask, 16 * kRowsOfTask);
  std::vector<double> memory(to_size(std::min(size, n) * n));
  for (std::int64_t first = 0; first < n; first += size) {
    const std::int64_t count = std::min(size, n - first);
    const auto row_of = [&](std::int64_t i) { return memory.data() + (i - first) * n; };
    parallel_pieces(pool, count, kRowsOfTask, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = first + begin; i < first + end; ++i) rows.begin(i, row_of(i));
      for (std::int64_t k = 0; k < first; k += kFinished)
        for (std::int64_t i = first + begin; i < first + end; ++i)
          rows.combine(i, k, std::min(k + kFinished, first), row_of(i));
    });
    for (std::int64_t i = first; i < first + count; ++i) {
      rows.combine(i, first, i, row_of(i));
      DLLM_CHECK_OK(finish(i, std::span(row_of(i), to_size(i + 1))));
    }
  }
  return {};
}

}  // namespace

void add_products(Triangle& hessian, std::span<const float> x, ThreadPool& pool) {
  const std::int64_t n = hessian.size(), rows = static_cast<std::int64_t>(x.size()) / n;
  parallel_items(pool, n, rows * n / 2, [&](std::int64_t i, int) {
    const std::span<float> to = hessian.row(i);
    for (std::int64_t first = 0; first <= i; first += kProductTile) {
      const std::int64_t count = std::min(kProductTile, i + 1 - first);
      double sums[kProductTile];
      // Whole tiles where there are so many columns: sums beyond the diagonal are not used.
      sum_columns(x.data() + i, x.data() + first, n, rows, std::min(kProductTile, n - first), sums);
      for (std::int64_t k = 0; k < count; ++k) {
        float& sum = to[to_size(first + k)];
        sum = static_cast<float>(static_cast<double>(sum) + sums[k]);
      }
    }
  });
}

void add_differences(std::span<double> cross, std::span<const float> x, std::span<const float> y, std::int64_t n,
                     ThreadPool& pool) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / n;
  parallel_items(pool, n, rows * n, [&](std::int64_t i, int) {
    for (std::int64_t first = 0; first < n; first += kTile) {
      const std::int64_t count = std::min(kTile, n - first);
      double sums[kTile] = {};
      for (std::int64_t r = 0; r < rows; ++r) {
        const float *const from = x.data() + r * n + first, *const to = y.data() + r * n + first;
        const auto factor = static_cast<double>(x[to_size(r * n + i)]);
        for (std::int64_t k = 0; k < count; ++k) sums[k] += factor * static_cast<double>(to[k] - from[k]);
      }
      for (std::int64_t k = 0; k < count; ++k) cross[to_size(i * n + first + k)] += sums[k];
    }
  });
}

void damp(Triangle& hessian, double damping) {
  double mean = 0;
  for (std::int64_t i = 0; i < hessian.size(); ++i)
    mean += static_cast<double>(hessian.row(i).back()) / static_cast<double>(hessian.size());
  const double added = mean > 0 ? damping * mean : 1.0;
  for (std::int64_t i = 0; i < hessian.size(); ++i) {
    float& value = hessian.row(i).back();
    value = static_cast<float>(static_cast<double>(value) + added);
  }
}

Expected<void> invert_factor(Triangle& hessian, ThreadPool& pool) {
  // Row by row, so that all inner products are over consecutive numbers (Cholesky-Banachiewicz). The rows that are
  // computed are in float64.
  struct Factor {
    const Triangle& triangle;
    void begin(std::int64_t i, double* row) const { std::ranges::copy(triangle.row(i), row); }
    void combine(std::int64_t, std::int64_t begin, std::int64_t end, double* row) const {
      eliminate(triangle, begin, end, row);
    }
  };
  const auto take_root = [&](std::int64_t i, std::span<double> row) -> Expected<void> {
    double pivot = row.back();
    for (std::size_t j = 0; j + 1 < row.size(); ++j) pivot -= row[j] * row[j];
    if (!(pivot > 0) || !std::isfinite(pivot))
      return Error{ErrorCode::kInvalidFile, "the Hessian of the calibration is not positive definite", "",
                   "activations overflow, or --damping is too small"};
    row.back() = std::sqrt(pivot);
    round_to(row, hessian.row(i));
    return {};
  };
  DLLM_CHECK_OK(for_rows(hessian.size(), pool, Factor{hessian}, take_root));

  struct Inverse {
    const Triangle& triangle;
    double last(std::int64_t i) const { return 1 / static_cast<double>(triangle.row(i).back()); }
    void begin(std::int64_t i, double* row) const { std::fill_n(row, i + 1, 0.0); }
    void combine(std::int64_t i, std::int64_t begin, std::int64_t end, double* row) const {
      substitute(triangle, triangle.row(i), last(i), begin, end, row);
    }
  };
  const Inverse inverse{hessian};
  const auto finish = [&](std::int64_t i, std::span<double> row) -> Expected<void> {
    row.back() = inverse.last(i);
    round_to(row, hessian.row(i));
    return {};
  };
  return for_rows(hessian.size(), pool, inverse, finish);
}

std::vector<double> diagonal_blocks(const Triangle& hessian, std::int64_t size) {
  std::vector<double> blocks(to_size(hessian.size() * size));
  for (std::int64_t i = 0; i < hessian.size(); ++i) {
    const std::int64_t first = i / size * size;
    for (std::int64_t k = first; k <= i; ++k) {
      const auto value = static_cast<double>(hessian.row(i)[to_size(k)]);
      blocks[to_size(i * size + k - first)] = value;
      blocks[to_size(k * size + i - first)] = value;
    }
  }
  return blocks;
}

}  // namespace dllm
