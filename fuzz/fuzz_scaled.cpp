#include "model/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(scaled, [](std::string_view text) { dllm::fuzz_scaled(dllm::fuzz::bytes_of(text)); })
