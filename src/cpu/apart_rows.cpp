#include "cpu/apart_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace dllm::cpu {
namespace {

double bound() {
  static const double value = std::getenv("APART") ? std::atof(std::getenv("APART")) : 128;
  return value;
}

/// What the codes of a row leave of it: x - scale q, rounded once.
void residual_of(const float* x, const QuantizedRows& codes, std::int64_t row, std::int64_t k, float* left) {
  const std::int8_t* const q = codes.values + row * codes.stride;
  const float* const scales = codes.scales + row * (k / 32);
  for (std::int64_t i = 0; i < k; ++i) left[i] = std::fma(-scales[i / 32], static_cast<float>(q[i]), x[i]);
}

}  // namespace

bool is_apart(const float* x, std::int64_t k) {
  double sums[8] = {};
  float most = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    const float size = std::abs(x[i]);
    sums[i % 8] += static_cast<double>(size);
    most = std::max(most, size);
  }
  double sum = 0;
  for (const double one : sums) sum += one;
  return static_cast<double>(most) * static_cast<double>(k) > bound() * sum;
}

const ApartRows* ApartRowStore::of(const KernelSet& kernels, std::int64_t value, const float* x,
                                   const QuantizedRows& codes, std::int64_t rows, std::int64_t k, std::int64_t n,
                                   bool exact, const PackedFormat& format) {
  Value* found = nullptr;
  for (std::size_t i = 0; i < used_; ++i)
    if (values_[i].id == value && values_[i].exact == exact) found = &values_[i];
  if (found == nullptr) {
    if (used_ == values_.size()) values_.emplace_back();
    found = &values_[used_++];
    found->id = value, found->exact = exact;
    found->rows.clear();
    for (std::int64_t row = 0; row < rows; ++row)
      if (is_apart(x + row * k, k)) found->rows.push_back(row);
    found->left.begin(static_cast<std::int64_t>(found->rows.size()), k, exact);
    std::vector<float> left(static_cast<std::size_t>(k));
    for (std::size_t i = 0; i < found->rows.size(); ++i) {
      residual_of(x + found->rows[i] * k, codes, found->rows[i], k, left.data());
      found->left.quantize(kernels, left.data(), static_cast<std::int64_t>(i), 0, k);
    }
  }
  if (found->rows.empty()) return nullptr;
  if (products_ == made_.size()) made_.emplace_back();
  Product& product = made_[products_++];
  product.rows.rows = found->rows;
  product.rows.left = found->left.view(format);
  product.products.reserve(found->rows.size() * static_cast<std::size_t>(n) * sizeof(float));
  product.rows.products = product.products.as<float>();
  return &product.rows;
}

}  // namespace dllm::cpu
