#pragma once

#include <string>

#include "cpu/cpu_backend.h"
#include "dllm/error.h"
#include "dllm/model.h"
#include "model/source.h"

/// The steps of LanguageModel::load, for those who need the parts: benchmarks, tools.
namespace dllm {

/// A GGUF file or a Hugging Face directory; empty: the embedded model.
Expected<ModelSource> open_or_embedded(const std::string& path);

/// What the names in `options` mean to the backend. Errors: kUsage, naming the flag.
Expected<CpuOptions> cpu_options(const LoadOptions& options);

}  // namespace dllm
