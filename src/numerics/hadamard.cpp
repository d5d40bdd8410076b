#include "numerics/hadamard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/hash.h"

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
        result.core_signs_.assign(signs->begin(), signs->end());
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

Expected<Hadamard> Hadamard::online(std::int64_t order) {
  auto result = create(order, 0);
  if (result && result->core_ > kMostCore)
    return Error{ErrorCode::kUnsupported, fmt::format("no fast Hadamard transform of order {} is known here", order),
                 "", "known: powers of two, times 12, 20, 28 or another order of Paley's up to 64"};
  return result;
}

std::int64_t Hadamard::largest_online(std::int64_t width, std::int64_t limit) {
  std::int64_t order = width;
  if (limit > 0) {
    for (order = 1; 2 * order <= limit && width % (2 * order) == 0;) order *= 2;
    return order;
  }
  while (order > 1 && (width % order != 0 || !online(order))) --order;
  return order;
}

namespace {

/// Sylvester's factor acts on the slow index, Paley's on the fast one.
template <class T>
void apply_factors(std::span<T> x, std::size_t core, std::span<const float> core_signs) {
  const std::size_t n = x.size();
  for (std::size_t step = core; step < n; step *= 2)
    for (std::size_t base = 0; base < n; base += 2 * step)
      for (std::size_t i = base; i < base + step; ++i) {
        const T a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
  if (core == 1) return;
  std::vector<T> in(core);
  for (std::size_t base = 0; base < n; base += core) {
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(base), core, in.begin());
    for (std::size_t c = 0; c < core; ++c) {
      T sum = 0;
      for (std::size_t r = 0; r < core; ++r) sum += in[r] * static_cast<T>(core_signs[r * core + c]);
      x[base + c] = sum;
    }
  }
}

}  // namespace

void Hadamard::apply(std::span<double> x) const {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= signs_[i] * scale_;
  apply_factors(x, static_cast<std::size_t>(core_), core_signs_);
}

void Hadamard::apply(std::span<float> x) const {
  apply_factors(x, static_cast<std::size_t>(core_), core_signs_);
  for (float& value : x) value *= scale();
}

}  // namespace dllm
