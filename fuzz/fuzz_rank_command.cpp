#include "ranks/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(rank_command, [](std::string_view text) { dllm::fuzz_rank_command(dllm::fuzz::bytes_of(text)); })
