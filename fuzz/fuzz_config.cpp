#include "model/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(config, [](std::string_view text) { dllm::fuzz_config(text); })
