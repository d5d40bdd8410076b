#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dllm/error.h"

namespace dllm::app {

/// What `dllm verify` found, {"name", "files": [{"name", "bytes", "sha256"}], "model", "texts": {"count", "sha256"},
/// "chat", "prompts": [...], "speed", "config"}, as a text to paste into an issue: Markdown, one table.
std::string verify_text(const nlohmann::ordered_json& report);

/// What a report found otherwise than another: "texts: other token ids". Speed, paths and machine do not count; parts
/// that one of them left out neither. Errors: kInvalidFile, if `other` is no report.
Expected<std::vector<std::string>> verify_differences(const nlohmann::ordered_json& report,
                                                      const nlohmann::ordered_json& other);

}  // namespace dllm::app
