#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "eval/evaluate.h"
#include "eval/text_table.h"

namespace dllm {

/// One row per task, then the total; the columns are those that the scoring fills.
TextTable score_table(const EvalReport& report);

/// {"tasks": {...}, "all": {...}, "complete": ..., "records": [...]}; the caller adds the configuration.
nlohmann::ordered_json report_json(const EvalReport& report);

nlohmann::ordered_json score_json(const TaskScore& score, Scoring scoring);
nlohmann::ordered_json record_json(const EvalRecord& record, Scoring scoring);

}  // namespace dllm
