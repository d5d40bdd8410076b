#include "engine/testing/recording_fuzz.h"
#include "target.h"

DLLM_FUZZ_TARGET(recording, [](std::string_view text) { dllm::fuzz_recording(text); })
