#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "dllm/error.h"
#include "model/model.h"
#include "quant/canvases.h"

namespace dllm {

/// Sums of a matrix's inputs over rows, column by column.
struct ColumnSums {
  std::int64_t columns = 0;
  std::vector<double> squares;  ///< [experts][columns]
  std::vector<double> counts;   ///< rows, by expert; one for a plain matrix
};

struct ImportanceOptions {
  std::string dataset{};  ///< what the canvases were made of, for the file
  int threads = 1;
  std::function<void(std::int64_t done, std::int64_t all)> progress{};  ///< canvases
  std::function<bool()> cancelled{};
};

/// Matrices and columns of a finished file.
struct ImportanceReport {
  std::int64_t matrices = 0, rows = 0, canvases = 0;
  /// Experts that no row used, of all layers: quantizers weight all columns of their matrices alike.
  std::int64_t unused_experts = 0;
};

/// What a model's matrices read while it sees these canvases, masks included: by GGUF name, all but the embedding and
/// the head. Where the file has one matrix for several (attn_qkv, ffn_gate_up_exps), that one too, by its name there:
/// its parts read the same. Computed in float32 without caches (CanvasRunner), summed in float64 in the order of the
/// rows, so the result depends on neither threads nor processor. Errors: kUnsupported (operations that CanvasRunner
/// does not have), kCancelled.
Expected<std::vector<std::pair<std::string, ColumnSums>>> column_sums(const Model& model,
                                                                      const std::vector<CalibrationCanvas>& canvases,
                                                                      const ImportanceOptions& options);

/// Writes them as llama-imatrix does (GGUF, NAME.in_sum2 and NAME.counts), so that llama-quantize reads the file too.
/// Errors: as above; those of writing a file.
Expected<ImportanceReport> write_importance(const Model& model, const std::vector<CalibrationCanvas>& canvases,
                                            const ImportanceOptions& options, const std::string& path, bool replace);

}  // namespace dllm
