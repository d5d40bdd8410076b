#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "model/weights.h"
#include "quant/row_quantizer.h"

namespace dllm {

/// Rows of a product's input.
struct InputBatch {
  std::span<const float> given;  ///< [rows][width], as the quantized layers before give them
  std::span<const float> exact;  ///< the unquantized model's; empty if the method does not correct
  /// What the product is added to, [rows][outputs], after quantized layers and without: both may be empty.
  std::span<const float> residual, exact_residual;
};

/// The input of one or more products over a calibration. It may be read several times.
struct ProductInputs {
  std::int64_t width = 0;
  std::function<void(const std::function<void(const InputBatch&)>&)> each;
  bool has_residual = false;
};

/// A matrix whose values are to be chosen.
struct MatrixJob {
  std::string name;  ///< for errors
  WeightView weight;
  TensorType type = TensorType::kF32;
  /// Gets the rows of the quantized matrix in order, several at a time.
  std::function<Expected<void>(std::span<const std::byte>)> write;
};

/// The targets of RowQuantizer::correct() for all rows of the matrices that multiply an input.
///
/// X^T (Y - X) is a square of the input's width. It is kept if the matrices have at least as many rows together;
/// otherwise, and where products are added to a residual stream, X^T ((Y - X) w + e) is added up for some rows of a
/// matrix at a time, in a pass over the inputs, which is less work then and needs less memory.
class Corrections {
 public:
  Corrections(const ProductInputs& inputs, std::int64_t outputs, ThreadPool& pool);
  /// `w`: rows of a matrix, the first of which is `first`, [rows][width]; `targets`: as large.
  void targets(std::span<const double> w, std::int64_t first, std::span<double> targets) const;

 private:
  const ProductInputs& inputs_;
  ThreadPool& pool_;
  std::vector<double> cross_;
};

/// Quantizes matrices that multiply one input. In memory are the Hessian of the input, a panel of rows of a matrix and,
/// for methods that correct, what Corrections describes.
class ProductQuantizer {
 public:
  ProductQuantizer(const QuantMethod& method, double damping, ThreadPool& pool)
      : method_(method), damping_(damping), pool_(pool) {}

  /// `inputs`: needed by methods that are calibrated(). Errors: kInvalidFile (weights that are not finite numbers or
  /// too large for the type; a Hessian that cannot be inverted), and those of the jobs' `write`.
  Expected<void> run(std::span<const MatrixJob> jobs, const ProductInputs* inputs) const;

 private:
  Expected<void> quantize(const MatrixJob& job, const RowQuantizer& quantizer, const Corrections* corrections) const;

  QuantMethod method_;
  double damping_;
  ThreadPool& pool_;
};

}  // namespace dllm
