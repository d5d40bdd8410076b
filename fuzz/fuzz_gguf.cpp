#include "format/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(gguf, [](std::string_view text) { dllm::fuzz_gguf(dllm::fuzz::bytes_of(text)); })
