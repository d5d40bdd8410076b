#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dllm/error.h"

namespace dllm {

/// One question with its expected answer: a line {"task": ..., "prompt": ..., "answer": ...} of a JSONL file.
struct EvalItem {
  std::string task = "default";  ///< as in the file; lines without it share this name
  std::string prompt;
  std::string answer;
  std::int64_t line = 0;  ///< 1-based
};

/// Empty lines are skipped, unknown members ignored. Errors (kInvalidFile) name `name` and the line: not JSON, not an
/// object, prompt or answer missing or no string; no item at all.
Expected<std::vector<EvalItem>> parse_items(std::string_view text, const std::string& name);
Expected<std::vector<EvalItem>> read_items(const std::string& path);

}  // namespace dllm
