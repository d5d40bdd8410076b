#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cpu/activations.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"

namespace dllm::cpu {

/// Whether a row has values so large that the arithmetic `apart` quantizes it twice: its largest absolute value is more
/// than 128 times the mean of them. docs/design/arithmetic.md has the order of the sum.
bool is_apart(const float* x, std::int64_t k);

/// Rows of a product that are quantized a second time.
struct ApartRows {
  std::vector<std::int64_t> rows;  ///< ascending
  QuantizedRows left;              ///< of each: what its codes leave of its values
  float* products = nullptr;       ///< [rows][n], of these
};

/// The rows that are apart, of the values of a step. A value's are found and quantized when the first product reads it.
class ApartRowStore {
 public:
  /// Of x[rows][k], whose codes are `codes`, for a product with `n` outputs; `exact`: see Activations::begin().
  /// nullptr: no row is. Valid until clear(). Throws std::bad_alloc.
  const ApartRows* of(const KernelSet& kernels, std::int64_t value, const float* x, const QuantizedRows& codes,
                      std::int64_t rows, std::int64_t k, std::int64_t n, bool exact, const PackedFormat& format);
  /// Forgets all values.
  void clear() { used_ = products_ = 0; }

 private:
  struct Value {
    std::int64_t id = -1;
    bool exact = false;
    std::vector<std::int64_t> rows;
    Activations left;
  };
  struct Product {
    ApartRows rows;
    Buffer products;
  };
  std::deque<Value> values_;  ///< the first `used_` are of this step
  std::deque<Product> made_;  ///< the first `products_`
  std::size_t used_ = 0, products_ = 0;
};

}  // namespace dllm::cpu
