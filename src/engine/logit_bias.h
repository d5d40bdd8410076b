#pragma once

#include <string_view>
#include <vector>

#include "backend/logit_adjustments.h"
#include "dllm/error.h"

namespace dllm {

/// Reads "15043+2.5,13-inf": token ids, each with what is added to its logit. Ascending by id. Errors: kUsage, for what
/// is not of this form, ids outside of `vocab` and ids given twice.
Expected<std::vector<LogitAdjustments::Token>> parse_logit_bias(std::string_view text, std::int64_t vocab);

}  // namespace dllm
