#include "npu_compiler/sweep/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(npu_toml, [](std::string_view text) { dllm::npu::fuzz_npu_toml(text); })
