#include "image/testing/fuzz_entry.h"

#include "target.h"

DLLM_FUZZ_TARGET(image, dllm::fuzz_image)
