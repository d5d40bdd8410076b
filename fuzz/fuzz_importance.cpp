#include "quant/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(importance, [](std::string_view text) { dllm::fuzz_importance(text); })
