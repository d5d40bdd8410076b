#include "npu_compiler/calibrate/small_matrix.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dllm::npu {
namespace {

/// Solves H x = g on the rows of `free`, by Cholesky. Precondition: H is positive definite.
std::vector<double> solve(const SmallMatrix& h, const std::vector<double>& g, const std::vector<std::size_t>& free) {
  const std::size_t n = free.size();
  SmallMatrix l(n);
  std::vector<double> y(n), x(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = h.at(free[i], free[j]);
      for (std::size_t k = 0; k < j; ++k) sum -= l.at(i, k) * l.at(j, k);
      l.at(i, j) = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / l.at(j, j);
    }
    double sum = g[free[i]];
    for (std::size_t k = 0; k < i; ++k) sum -= l.at(i, k) * y[k];
    y[i] = sum / l.at(i, i);
  }
  for (std::size_t i = n; i-- > 0;) {
    double sum = y[i];
    for (std::size_t k = i + 1; k < n; ++k) sum -= l.at(k, i) * x[k];
    x[i] = sum / l.at(i, i);
  }
  return x;
}

}  // namespace

std::vector<double> non_negative(const SmallMatrix& h, const std::vector<double>& g) {
  const std::size_t n = h.size();
  std::vector<double> z(n, 0);
  std::vector<std::size_t> free;
  for (std::size_t round = 0; round < 3 * n + 3; ++round) {
    std::size_t enters = n;
    double steepest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (std::ranges::find(free, i) != free.end()) continue;
      double gradient = g[i];
      for (std::size_t j = 0; j < n; ++j) gradient -= h.at(i, j) * z[j];
      gradient /= std::sqrt(h.at(i, i));
      if (gradient > steepest + 1e-12) enters = i, steepest = gradient;
    }
    if (enters == n) break;
    free.push_back(enters);
    for (;;) {
      const std::vector<double> x = solve(h, g, free);
      double share = 1;
      for (std::size_t i = 0; i < free.size(); ++i)
        if (x[i] <= 0) share = std::min(share, z[free[i]] / (z[free[i]] - x[i] + 1e-300));
      for (std::size_t i = 0; i < free.size(); ++i) z[free[i]] += share * (x[i] - z[free[i]]);
      if (share == 1) break;
      std::erase_if(free, [&z](std::size_t i) { return z[i] <= 1e-12; });
      for (std::size_t i = 0; i < n; ++i)
        if (std::ranges::find(free, i) == free.end()) z[i] = 0;
      if (free.empty()) break;
    }
  }
  return z;
}

Eigen eigen(SmallMatrix a) {
  const std::size_t n = a.size();
  SmallMatrix v(n);
  for (std::size_t i = 0; i < n; ++i) v.at(i, i) = 1;
  for (int sweep = 0; sweep < 60; ++sweep)
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        if (std::abs(a.at(p, q)) < 1e-300) continue;
        const double theta = (a.at(q, q) - a.at(p, p)) / (2 * a.at(p, q));
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a.at(k, p), y = a.at(k, q);
          a.at(k, p) = c * x - s * y, a.at(k, q) = s * x + c * y;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double x = a.at(p, k), y = a.at(q, k);
          a.at(p, k) = c * x - s * y, a.at(q, k) = s * x + c * y;
          const double vx = v.at(k, p), vy = v.at(k, q);
          v.at(k, p) = c * vx - s * vy, v.at(k, q) = s * vx + c * vy;
        }
      }
  std::vector<double> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(a.at(i, i));
  return {values, v};
}

}  // namespace dllm::npu
