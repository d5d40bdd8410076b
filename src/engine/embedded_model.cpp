#include "engine/embedded_model.h"

extern "C" {
extern const std::byte dllm_embedded_model_begin[];
extern const std::byte dllm_embedded_model_end[];
}

namespace dllm {

std::span<const std::byte> embedded_model() { return {dllm_embedded_model_begin, dllm_embedded_model_end}; }

}  // namespace dllm
