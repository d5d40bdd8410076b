#pragma once

#include <cstdint>
#include <string>

#include "dllm/error.h"
#include "model/source.h"

/// The steps of LanguageModel::load, for code that needs the parts: benchmarks, tools.
namespace dllm {

/// A GGUF file or a Hugging Face directory; empty: the embedded model.
Expected<ModelSource> open_or_embedded(const std::string& path);

/// Distinguishes a model file from others, and from later versions of itself, without reading it.
struct SourceIdentity {
  std::uint64_t size = 0;   ///< bytes of the file, or of a directory's safetensors and JSON files
  std::uint64_t stamp = 0;  ///< hash of their sizes and modification times
};
/// Zeros for the embedded model and for files that cannot be examined.
SourceIdentity source_identity(const std::string& model);

}  // namespace dllm
