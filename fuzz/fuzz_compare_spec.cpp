#include "app/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(compare_spec, [](std::string_view text) { dllm::app::fuzz_compare_spec(text); })
