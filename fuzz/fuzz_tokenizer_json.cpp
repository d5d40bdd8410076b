#include "target.h"
#include "text/testing/fuzz_entry.h"

DLLM_FUZZ_TARGET(tokenizer_json,
                 [](std::string_view text) { dllm::fuzz_tokenizer_json(dllm::fuzz::data_of(text), text.size()); })
