#include "engine/embedded_model.h"

#ifdef DLLM_HAS_EMBEDDED_MODEL
extern "C" {
extern const std::byte dllm_embedded_model_begin[];
extern const std::byte dllm_embedded_model_end[];
}
#endif

namespace dllm {

#ifdef DLLM_HAS_EMBEDDED_MODEL
std::span<const std::byte> embedded_model() { return {dllm_embedded_model_begin, dllm_embedded_model_end}; }
#else
std::span<const std::byte> embedded_model() { return {}; }
#endif

}  // namespace dllm
