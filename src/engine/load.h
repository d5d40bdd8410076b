#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"
#include "dllm/model.h"
#include "model/adapter.h"
#include "model/rope_request.h"
#include "model/source.h"

/// The steps of LanguageModel::load, for code that needs the parts: benchmarks, tools.
namespace dllm {

/// A GGUF file or a Hugging Face directory; empty: the embedded model.
Expected<ModelSource> open_or_embedded(const std::string& path);

/// The adapters that the options name. Errors: kUsage.
Expected<std::vector<AdapterRequest>> adapter_requests(const LoadOptions& options);

/// How the options scale positions.
RopeRequest rope_request(const LoadOptions& options);

/// Distinguishes a model file from others, and from later versions of itself, without reading it.
struct SourceIdentity {
  std::uint64_t size = 0;   ///< bytes of the file, or of a directory's safetensors and JSON files
  std::uint64_t stamp = 0;  ///< hash of their sizes and modification times
};
/// Zeros for the embedded model and for files that cannot be examined.
SourceIdentity source_identity(const std::string& model);

}  // namespace dllm
