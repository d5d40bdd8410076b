#pragma once

#include <string>
#include <vector>

#include "dllm/pass_record.h"
#include "engine/strict_object.h"

namespace dllm {

/// The value of `passes` in a recording's answer: a list of objects, whose keys docs/guide/benchmarking.md describes.
/// `length`: positions of the answer. `left`: positions that the file's lists may still have, because few bytes of them
/// can name many. Errors: kInvalidFile, with the place.
Expected<std::vector<PassRecord>> read_passes(StrictObject& answer, std::int32_t length, std::int64_t& left);
std::string passes_text(const std::vector<PassRecord>& passes);

}  // namespace dllm
