#include "quant/hadamard.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/rng.h"

namespace dllm {
namespace {

bool is_prime(std::int64_t n) {
  for (std::int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

/// The Jacobsthal matrix of a prime q: the quadratic character of row - column.
std::vector<int> jacobsthal(std::int64_t q) {
  std::vector<int> character(static_cast<std::size_t>(q), -1), matrix;
  character[0] = 0;
  for (std::int64_t x = 1; x < q; ++x) character[static_cast<std::size_t>(x * x % q)] = 1;
  for (std::int64_t r = 0; r < q; ++r)
    for (std::int64_t c = 0; c < q; ++c) matrix.push_back(character[static_cast<std::size_t>((r - c + q) % q)]);
  return matrix;
}

/// [[0, 1], [±1, Jacobsthal]] of order q + 1: skew for q = 3 mod 4, symmetric for q = 1 mod 4.
std::vector<int> conference(std::int64_t q) {
  const std::int64_t n = q + 1;
  const std::vector<int> inner = jacobsthal(q);
  std::vector<int> matrix(static_cast<std::size_t>(n * n), 0);
  for (std::int64_t i = 1; i < n; ++i) {
    matrix[static_cast<std::size_t>(i)] = 1;
    matrix[static_cast<std::size_t>(i * n)] = q % 4 == 1 ? 1 : -1;
    for (std::int64_t j = 1; j < n; ++j)
      matrix[static_cast<std::size_t>(i * n + j)] = inner[static_cast<std::size_t>((i - 1) * q + j - 1)];
  }
  return matrix;
}

/// Paley's constructions: I + C for order q + 1 with q = 3 mod 4, and of order 2 (q + 1) with q = 1 mod 4 blocks of
/// two. nullopt: neither fits.
std::optional<std::vector<std::int8_t>> paley(std::int64_t order) {
  std::vector<std::int8_t> signs(static_cast<std::size_t>(order * order));
  if (is_prime(order - 1) && (order - 1) % 4 == 3) {
    const std::vector<int> c = conference(order - 1);
    for (std::size_t i = 0; i < signs.size(); ++i)
      signs[i] = static_cast<std::int8_t>(c[i] + (i % static_cast<std::size_t>(order + 1) == 0 ? 1 : 0));
    return signs;
  }
  const std::int64_t half = order / 2;
  if (order % 2 != 0 || !is_prime(half - 1) || (half - 1) % 4 != 1) return std::nullopt;
  const std::vector<int> c = conference(half - 1);
  constexpr int kOff[2][2] = {{1, 1}, {1, -1}}, kDiagonal[2][2] = {{1, -1}, {-1, -1}};
  for (std::int64_t r = 0; r < order; ++r)
    for (std::int64_t col = 0; col < order; ++col) {
      const bool diagonal = r / 2 == col / 2;
      const int block = diagonal ? kDiagonal[r % 2][col % 2] : kOff[r % 2][col % 2];
      const int sign = diagonal ? 1 : c[static_cast<std::size_t>(r / 2 * half + col / 2)];
      signs[static_cast<std::size_t>(r * order + col)] = static_cast<std::int8_t>(sign * block);
    }
  return signs;
}

}  // namespace

Expected<Hadamard> Hadamard::create(std::int64_t order, std::uint64_t seed) {
  Hadamard result;
  result.order_ = order;
  result.scale_ = 1 / std::sqrt(static_cast<double>(order));
  std::int64_t odd = order;
  while (odd > 1 && odd % 2 == 0) odd /= 2;
  if (order < 1)
    return Error{ErrorCode::kUnsupported, fmt::format("there is no Hadamard matrix of order {}", order), "", ""};
  if (odd > 1) {
    // 4 times the odd part, or 8 times it: 12 = 4 * 3, 20 = 4 * 5, 28 = 4 * 7.
    for (const std::int64_t core : {4 * odd, 8 * odd}) {
      if (order % core != 0) continue;
      if (auto signs = paley(core)) {
        result.core_ = core;
        result.core_signs_ = *std::move(signs);
        break;
      }
    }
    if (result.core_ == 1)
      return Error{ErrorCode::kUnsupported, fmt::format("no Hadamard matrix of order {} is known here", order), "",
                   "known: powers of two, times 12, 20, 28 or another order of Paley's"};
  }
  std::uint64_t state = seed;
  for (std::int64_t i = 0; i < order; ++i)
    result.signs_.push_back(seed != 0 && (splitmix64(state) >> 63) != 0 ? std::int8_t{-1} : std::int8_t{1});
  return result;
}

void Hadamard::apply(std::span<double> x) const {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= signs_[i] * scale_;
  // Sylvester's factor acts on the slow index, Paley's on the fast one.
  const auto n = x.size(), core = static_cast<std::size_t>(core_);
  for (std::size_t step = core; step < n; step *= 2)
    for (std::size_t base = 0; base < n; base += 2 * step)
      for (std::size_t i = base; i < base + step; ++i) {
        const double a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
  if (core == 1) return;
  std::vector<double> in(core);
  for (std::size_t base = 0; base < n; base += core) {
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(base), core, in.begin());
    for (std::size_t c = 0; c < core; ++c) {
      double sum = 0;
      for (std::size_t r = 0; r < core; ++r) sum += in[r] * core_signs_[r * core + c];
      x[base + c] = sum;
    }
  }
}

}  // namespace dllm
