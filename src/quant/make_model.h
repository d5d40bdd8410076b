#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "dllm/error.h"
#include "model/shape.h"
#include "quant/convert.h"
#include "quant/recipe.h"

namespace dllm {

struct MakeOptions {
  std::string type = "Q4_0";  ///< a name of recipes()
  RecipeOptions recipe{};
  ShapeOverrides shape{};
  std::uint64_t seed = 0;
  int threads = 1;  ///< >= 1; the file is the same for every number
  std::function<void(std::string_view tensor, double fraction)> progress{};
  bool replace = true;  ///< false: an error if the target exists when the file is complete
  /// Called every few MiB; true stops with kCancelled and leaves the target as it was.
  std::function<bool()> cancelled{};
};

/// Writes a model with a published model's dimensions and random weights (RandomWeights), in the types that `dllm
/// quantize` would choose. Uses some tens of MiB of memory, whatever the shape. The target is replaced only by a
/// complete file. Errors: kUsage (type, overrides, target is no regular file), kIo (no space: reported before anything
/// is written, where the file system tells), kCancelled.
Expected<WriteReport> make_model(const ModelShape& shape, const MakeOptions& options, const std::string& path);

}  // namespace dllm
