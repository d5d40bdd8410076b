#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "quant/block_grid.h"
#include "quant/hessian.h"

namespace dllm {

/// How the scale of a block is chosen among BlockGrid::scales().
enum class ScaleChoice : std::uint8_t {
  kOwn,     ///< the type's own rule
  kWeight,  ///< x-clip: the least |w - q|^2 of the block
  kOutput,  ///< y-clip: the least |X_b (w - q)|^2 over the calibration (DART, Eq. 7)
  kFinal,   ///< as kOutput, but with q as GPTQ rounds within the block, and all later columns adjusted
};

struct QuantMethod {
  ScaleChoice scale = ScaleChoice::kOwn;
  bool gptq = false;
  bool correct = false;  ///< see RowQuantizer::correct(); with GPTQ
  bool calibrated() const { return gptq || scale == ScaleChoice::kOutput || scale == ScaleChoice::kFinal; }
  bool plain() const { return !gptq && scale == ScaleChoice::kOwn; }
};
/// "rtn", "x-clip", "y-clip", "gptq", "gptq+x-clip", "gptq+y-clip", "gptq+search", and these four with "+correct".
std::optional<QuantMethod> quant_method(std::string_view name);
std::vector<std::string> quant_method_names();

/// d G d^T over a block: y-clip's cost of the differences d = w - q, with G = X_b^T X_b, [n][n].
double output_cost(std::span<const double> difference, const double* gram);

/// Rounds the rows of a matrix. The rows are independent of each other, so threads do not matter.
///
/// GPTQ (Frantar et al., arXiv 2210.17323), with H = X^T X = L L^T: columns are rounded from the last to the first; the
/// error e = (w_j - q_j) / (L^-1)_jj of each is spread over the columns before it, w_k -= e (L^-1)_jk, which keeps the
/// output nearest to the original's. The paper visits columns from the first to the last; no order is better in
/// general, and this one needs no transposition. A block's scale is chosen when its first column is reached, from the
/// weights as they are then (PLENA rounds whole blocks and spreads their errors only to other blocks, which is worse).
class RowQuantizer {
 public:
  /// `hessian`: of the input, for methods that are calibrated(); it is factorized here. Errors: those of
  /// invert_factor().
  static Expected<RowQuantizer> create(const BlockGrid& grid, const QuantMethod& method,
                                       std::optional<Triangle> hessian, double damping, ThreadPool& pool);

  /// Moves a row w so that products with the inputs x that it gets come closest to what they should be: those of the
  /// old w with the inputs y of the unquantized model, plus `e` per row of the inputs. w += (H + damping)^-1 t with t =
  /// X^T ((Y - X) w + e), the least-squares solution, damped towards w. What earlier layers lost is thus corrected as
  /// far as this matrix can, before it is rounded (the objective of GPTAQ, arXiv 2504.02692). Precondition: the method
  /// is GPTQ.
  void correct(std::span<double> w, std::span<const double> t) const;

  /// `w`: rows of the matrix, [rows][columns]; replaced by their quantized values. `out`: their bytes.
  void quantize(std::span<double> w, std::int64_t columns, std::span<std::byte> out, std::int64_t row_bytes) const;

 private:
  struct Block {
    std::uint16_t scale = 0;
    std::vector<std::uint16_t> codes;
    std::vector<double> values, errors;  ///< GPTQ: errors are e
    double cost = 0;
  };
  RowQuantizer(const BlockGrid& grid, const QuantMethod& method) : grid_(grid), method_(method) {}
  void round_block(std::span<const double> w, std::int64_t first, std::uint16_t scale, Block& block) const;
  void round_nearest(std::span<const double> w, std::uint16_t scale, Block& block) const;
  double cost(std::span<const double> w, std::int64_t first, std::uint16_t scale, Block& scratch) const;
  std::uint16_t choose_scale(std::span<const double> w, std::int64_t first, Block& scratch) const;
  /// Moves the columns before `first` so that they make up for the errors e of the block there, [rows][block].
  void distribute(std::span<const double> errors, std::int64_t first, std::int64_t columns, std::span<double> w) const;

  BlockGrid grid_;
  QuantMethod method_;
  std::vector<double> grams_;               ///< by block, if the scale's choice needs them
  std::optional<Triangle> inverse_factor_;  ///< GPTQ
};

}  // namespace dllm
