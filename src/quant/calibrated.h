#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"
#include "model/model.h"
#include "model/source.h"
#include "quant/canvases.h"
#include "quant/convert.h"
#include "quant/row_quantizer.h"

namespace dllm {

struct CalibrationOptions {
  std::string method = "rtn";  ///< one of quant_method_names()
  double damping = 0.01;       ///< GPTQ: times the mean of the Hessian's diagonal
  /// Makes the canvases, if the method needs any; the model is the source's.
  std::function<Expected<std::vector<CalibrationCanvas>>(const Model&)> canvases{};
  std::string description{};  ///< of the canvases, for the file's metadata
};

/// write_model() with a better choice of the matrices' values than rounding to nearest: the whole of `dllm quantize
/// --method`. Matrices whose type is no MX format, Q4_0 or Q8_0, and embedding tables, are rounded to nearest.
///
/// The canvases pass through the model once, from one matrix product to the next. When the inputs of a product (or of
/// several with one input, as Q, K and V) are known, its weights are quantized, and what follows sees their errors.
/// Experts are calibrated one after the other, each with the rows that use it (StageInputs::enough). In memory are some
/// rows of activations, one Hessian and a panel of a matrix (ProductQuantizer); the activations between two products
/// are in a file.
///
/// Finished matrices and the last activations are kept in the directory `path`.ID.partial, where ID identifies source
/// and options: the same call continues there, whatever ended the first one (PartialResults). What is damaged there is
/// computed again. The directory is removed when the target is complete. Errors: kUsage (another process works there);
/// those of write_model() and of the calibration; kUsage (unknown method; no canvases), kUnsupported (a model with
/// windows or regions; a type without blocks that can be chosen).
Expected<WriteReport> write_quantized(const ModelSource& source, WriteOptions options,
                                      const CalibrationOptions& calibration, const std::string& path);

}  // namespace dllm
