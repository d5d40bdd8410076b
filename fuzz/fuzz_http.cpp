#include "serve/testing/fuzz_entry.h"
#include "target.h"

DLLM_FUZZ_TARGET(http, [](std::string_view text) { dllm::serve::fuzz_http(text); })
