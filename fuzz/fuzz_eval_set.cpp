#include "eval/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(eval_set, [](std::string_view text) { dllm::fuzz_eval_set(text); })
