#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log.h"
#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "model/model.h"
#include "model/source.h"

/// The steps of LanguageModel::load, for those who need the parts: benchmarks, tools.
namespace dllm {

/// A GGUF file or a Hugging Face directory; empty: the embedded model.
Expected<ModelSource> open_or_embedded(const std::string& path);

/// What the names in `options` mean to the backend. Errors: kUsage, naming the flag.
Expected<CpuOptions> cpu_options(const LoadOptions& options);

/// A backend for a loaded model, whose weights outlive it.
using BackendFactory = std::function<Expected<std::unique_ptr<Backend>>(const Model&)>;

/// Models that do not run on the CPU's backend. Whoever knows the other backend (the commands do) brings it along.
struct LanguageModelParts {
  /// As LanguageModel::load; of `options` only `warnings` counts.
  static Expected<LanguageModel> load(const std::string& path, const LoadOptions& options,
                                      const BackendFactory& factory);
  static Backend& backend(LanguageModel& model);
};

/// Tells one model file from another, or from a later version of itself, without reading it.
struct SourceIdentity {
  std::uint64_t size = 0;   ///< bytes of the file, or of a directory's safetensors and JSON files
  std::uint64_t stamp = 0;  ///< hash of their sizes and modification times
};
/// Zeroes for the embedded model and for what cannot be examined.
SourceIdentity source_identity(const std::string& model);

/// Where the packed weights of the model at `path` are kept, and what identifies that model. No path in the result if
/// the options ask for none. Errors: kUsage ("auto" for the embedded model).
Expected<WeightCacheOptions> weight_cache_options(const std::string& model, const LoadOptions& load, const Log& log);

}  // namespace dllm
