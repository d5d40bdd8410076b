#pragma once

#include <string>

#include "dllm/error.h"
#include "model/source.h"

namespace dllm {

/// Writes a vision tower (vision_source()) to a GGUF file in llama.cpp's form. Matrices have the type `type`, a name of
/// recipes(): F32, F16, BF16 or Q8_0, and of any other name F16; so have those whose rows do not fit Q8_0. All other
/// tensors, the patches' kernel and the places' embeddings are F32. The target is replaced only by a complete file.
/// Errors: kUsage, kInvalidFile, kIo, as write_model().
Expected<void> write_vision(const ModelSource& source, const std::string& type, int threads, bool replace,
                            const std::string& path);

}  // namespace dllm
