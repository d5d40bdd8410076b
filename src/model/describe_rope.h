#pragma once

#include "dllm/error.h"
#include "model/key_reader.h"
#include "model/model_desc.h"

namespace dllm {

/// RoPE, its scaling (none, linear, YaRN) and the growth of queries, from `{arch}.rope.*` and
/// `{arch}.attention.temperature_*`. Widths and context are in `desc` already.
Expected<void> describe_rope(KeyReader& keys, ModelDesc& desc);

}  // namespace dllm
