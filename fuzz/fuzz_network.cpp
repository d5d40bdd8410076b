#include "npu_compiler/workload/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(network, [](std::string_view text) { dllm::npu::fuzz_network(text); })
