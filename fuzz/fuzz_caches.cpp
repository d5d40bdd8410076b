#include "engine/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(caches, [](std::string_view text) { dllm::fuzz_caches(dllm::fuzz::bytes_of(text)); })
