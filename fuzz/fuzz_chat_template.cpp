#include "target.h"
#include "text/testing/fuzz_entry.h"

DLLM_FUZZ_TARGET(chat_template,
                 [](std::string_view text) { dllm::fuzz_chat_template(dllm::fuzz::data_of(text), text.size()); })
