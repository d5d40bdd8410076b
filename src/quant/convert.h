#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "dllm/error.h"
#include "format/sealed_file.h"
#include "model/source.h"
#include "quant/importance.h"
#include "quant/recipe.h"
#include "quant/rotation.h"

namespace dllm {

struct WriteOptions {
  std::string type = "F16";  ///< a name of recipes(): "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K_M", ...
  RecipeOptions recipe{};
  int threads = 1;  ///< >= 1; the file is the same for every number
  /// Sets `general.name`, which by default is the source's; empty: unchanged.
  std::string model_name{};
  /// Sets `dllm.canvas_length` and `diffusion.block_length`, the defaults of later runs; 0: as in the source. kUsage
  /// for another block than that of the source's `diffusion.attention_block`.
  std::int32_t canvas_length = 0, block_length = 0;
  /// Called in the calling thread before each tensor (done < total) and once at the end (done == total, empty name).
  std::function<void(std::string_view tensor, std::int64_t done, std::int64_t total)> progress{};
  bool replace = true;  ///< false: an error if the target exists when the file is complete
  /// Called before each tensor; true stops with kCancelled and leaves the target as it was.
  std::function<bool()> cancelled{};
  /// Set in the file in addition to the source's metadata.
  std::vector<std::pair<std::string, MetaValue>> metadata{};
  Rotation rotation = Rotation::kNone;  ///< of write_quantized()
  std::int32_t rotation_order = 0;      ///< RotationOptions::order
  /// Bytes of tensors, by name, that are in their type already; null: none. They are written as they are.
  const std::map<std::string, SealedFile>* prepared = nullptr;
  /// Weights of the errors, of write_model(); null: none. RecipeOptions::importance is set then too.
  std::shared_ptr<const Importance> importance{};
  Log log{};  ///< receives what is wrong with partial results of earlier calls
};

/// A tensor whose rows do not fit the blocks of the type that the recipe wanted.
struct Fallback {
  std::string tensor;
  TensorType wanted;
  TensorType written;
};

struct WriteReport {
  std::int64_t tensors = 0;
  std::int64_t bytes_in = 0;  ///< of the tensors, without metadata
  std::int64_t bytes_out = 0;
  std::int64_t elements = 0;
  std::map<TensorType, std::int64_t> tensors_by_type;
  std::vector<Fallback> fallbacks;
  std::vector<std::string> warnings;  ///< whole sentences for people, e.g. that a quantized model was quantized again

  double bits_per_weight() const {
    return elements == 0 ? 0.0 : 8.0 * static_cast<double>(bytes_out) / static_cast<double>(elements);
  }
};

/// What is known of a file before its first byte is written, without bytes_in and warnings.
WriteReport planned_report(const ModelSource& source, const std::vector<TypeChoice>& choices);

/// What a user should know of tensors that were quantized before.
std::vector<std::string> requantization_warnings(const ModelSource& source, const std::vector<TypeChoice>& choices);

/// The types of the tensors that write_model() will write, and the errors that it would give before the first byte.
Expected<std::vector<TypeChoice>> plan_types(const ModelSource& source, const WriteOptions& options,
                                             const std::string& path);

/// Writes `source` to the GGUF file `path` with the types of a recipe: the whole of `dllm convert` and `dllm
/// quantize`. One tensor is in memory at a time. A tensor that already has its type is copied bit by bit; any other is
/// widened to F32 first. The target is replaced only by a complete file. Errors: kUsage (unknown type, threads < 1,
/// target is a source or no regular file), kInvalidFile (a weight is NaN or infinite: tensor and element;
/// contradictory metadata), kUnsupported (a type that this build cannot encode), kIo (also: the source changed while
/// it was read), kCancelled.
Expected<WriteReport> write_model(const ModelSource& source, const WriteOptions& options, const std::string& path);

}  // namespace dllm
