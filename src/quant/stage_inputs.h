#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "graph/graph.h"
#include "quant/activation_file.h"
#include "quant/product_quantizer.h"
#include "quant/stages.h"

namespace dllm {

/// The inputs of a stage's products, from the file of its activations. Its chunks are those after quantized layers, and
/// each is followed by the unquantized model's if the method corrects.
class StageInputs {
 public:
  StageInputs(const ActivationFile& file, const CalibrationStage& stage, bool correct, ThreadPool& pool)
      : file_(file), stage_(stage), step_(correct ? 2 : 1), pool_(pool) {}

  /// All rows.
  ProductInputs all() const;

  /// A row of a chunk.
  struct RowId {
    std::uint32_t chunk = 0, row = 0;
  };
  /// By expert: the rows that use it after quantized layers.
  std::vector<std::vector<RowId>> routed(std::int64_t experts) const;

  /// The rows from which an expert's matrices of `width` columns are calibrated. These are the rows that use it; fewer
  /// than `width` rows leave directions of the input unseen, which GPTQ would then treat as free. So as many more as
  /// are missing are taken from all rows, evenly spaced: an expert that no row uses is calibrated for the layer's rows,
  /// and a rare one for a mixture.
  std::vector<RowId> enough(const std::vector<RowId>& routed, std::int64_t width) const;

  /// The input of an expert's gate and up.
  ProductInputs expert(const std::vector<RowId>& rows) const;

  struct ExpertMatrices {
    WeightView gate, up;
  };
  /// The input of its down, given its gate and up after quantization and before.
  ProductInputs expert_down(const std::vector<RowId>& rows, const ExpertMatrices& given,
                            const ExpertMatrices& exact) const;

 private:
  std::int64_t count() const;
  std::vector<float> gather(std::span<const RowId> rows, bool exact) const;

  const ActivationFile& file_;
  const CalibrationStage& stage_;
  std::size_t step_;
  ThreadPool& pool_;
};

}  // namespace dllm
