#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/parallel.h"
#include "cpu/activations.h"
#include "cpu/buffer.h"
#include "cpu/kernels/kernel_set.h"
#include "cpu/packed_weights.h"
#include "cpu/row_groups.h"
#include "cpu/super_rows.h"
#include "model/weights.h"

namespace dllm::cpu {

/// One product of a region: out[rows][n].
struct Product {
  LinearArgs args;
  std::int64_t n = 0;
  float* out = nullptr;
  std::optional<QuantizedRows> residual{};  ///< rows whose product with the same weights is added
};

/// Products with weights: chooses the kernels, prepares activations, splits outputs into tasks.
class LinearRunner {
 public:
  /// `decoding` replaces that which is faster here. `residual`: products of codes have the arithmetic of that name.
  LinearRunner(const KernelSet& kernels, ThreadPool& pool, std::optional<Decoding> decoding = std::nullopt,
               bool residual = false);

  /// A product's weight operands: the panels if it is `packed`, else the weight as stored in the file. Its rows, at
  /// most `rows`, are set elsewhere. For stacks: those of the first matrix.
  LinearArgs weight_args(const WeightView& weight, const PackedWeight* packed, std::int64_t rows) const;

  /// Arguments for rows of `x` ([rows][k]): the kernels of the weight's format if it is `packed`, else the float family
  /// over the unpacked `weight`. Quantizes or groups x for the former, unless that is already done: `value` identifies
  /// x until forget(), since q, k and v read one input. Throws std::bad_alloc.
  LinearArgs prepare(const WeightView& weight, const PackedWeight* packed, const float* bias, const float* x,
                     std::int64_t rows, std::int64_t value);
  /// What is added to a product in the arithmetic `residual`. `args` and `value` as prepare() has returned and taken
  /// them; nullopt: the arithmetic does not apply.
  std::optional<QuantizedRows> residual_rows(const LinearArgs& args, std::int64_t value);
  bool residual() const { return residual_; }
  /// Adds outputs [first, last) of a product without bias to `args.out`.
  void accumulate(LinearArgs args, std::int64_t first, std::int64_t last, int worker);
  void forget() { activations_.clear(), groups_.clear(), super_.clear(); }

  /// Whether products with this weight need activations with exact scales.
  static bool exact_activations(const PackedFormat& format, std::int64_t k);
  static bool exact_activations(const PackedWeight& weight) { return exact_activations(*weight.format, weight.k); }
  /// For operators that compute a value which products read next, and can quantize it while it is in the cache: see
  /// Activations::quantize(). All of it must be quantized before prepare(). Throws std::bad_alloc.
  Activations& begin_activations(std::int64_t value, std::int64_t rows, std::int64_t k, bool exact) {
    return activations_.begin(value, rows, k, exact, residual_);
  }

  /// All outputs of products of the same rows, in one parallel loop.
  void run(std::span<const Product> products);
  void run(const LinearArgs& args, std::int64_t n, float* out) {
    const Product product{args, n, out};
    run({&product, 1});
  }

  /// combine(begin, end) is called concurrently by threads when outputs [begin, end) of both are complete.
  using Combine = std::function<void(std::int64_t begin, std::int64_t end)>;
  /// Two products of the same shape and rows whose outputs are combined one by one, while they are in the cache.
  void run_gated(const Product& gate, const Product& up, const Combine& combine);

  void* scratch(int worker);

 private:
  /// Pairs of panels [begin, end) of a product.
  void multiply(const Product& product, std::int64_t begin, std::int64_t end, int worker);
  void multiply_twice(const Product& product, std::int64_t begin, std::int64_t end, int worker);

  const KernelSet& kernels_;
  ThreadPool& pool_;
  std::optional<Decoding> decoding_;
  bool residual_;
  Buffer scratch_;
  ActivationStore activations_;
  RowGroups groups_;
  SuperRowStore super_;
};

}  // namespace dllm::cpu
