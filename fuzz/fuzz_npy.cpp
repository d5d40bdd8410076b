#include "format/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(npy, [](std::string_view text) { dllm::fuzz_npy(dllm::fuzz::bytes_of(text)); })
