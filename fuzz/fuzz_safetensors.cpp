#include "format/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(safetensors, [](std::string_view text) { dllm::fuzz_safetensors(dllm::fuzz::bytes_of(text)); })
