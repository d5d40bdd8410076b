#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "eval/evaluate.h"

namespace dllm {

/// Aligned columns for people; `markdown` makes them a table. One row per task, then all.
std::string score_table(const EvalReport& report, bool markdown);

/// {"tasks": {...}, "all": {...}, "complete": ..., "records": [...]}; the caller adds the configuration.
nlohmann::ordered_json report_json(const EvalReport& report);

nlohmann::ordered_json record_json(const EvalRecord& record);

}  // namespace dllm
