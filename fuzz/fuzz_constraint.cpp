#include "constrain/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(constraint, [](std::string_view text) { dllm::constrain::fuzz_constraint(text); })
