#include "model/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(model, [](std::string_view text) { dllm::fuzz_model(dllm::fuzz::bytes_of(text)); })
