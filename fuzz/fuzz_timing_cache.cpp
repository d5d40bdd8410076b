#include "npu_core/timing/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(timing_cache, [](std::string_view text) { dllm::npu::fuzz_timing_cache(text); })
