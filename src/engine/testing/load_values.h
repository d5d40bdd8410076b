#pragma once

#include <algorithm>
#include <string>

#include "dllm/options.h"

namespace dllm::test {

/// A text that the declaration accepts, and that is not the default.
inline std::string allowed_text(const OptionInfo& info) {
  if (!info.choices.empty()) return info.choices.back();
  if (info.type == OptionType::kBool) return "true";
  return info.type == OptionType::kText ? "some-name" : to_text(static_cast<std::int64_t>(info.minimum) + 1);
}

/// A text that it does not; empty: of free texts, those who read them judge.
inline std::string wrong_text(const OptionInfo& info) {
  if (!info.choices.empty()) return info.choices.back() + "x";
  if (info.type == OptionType::kBool) return "perhaps";
  return info.type == OptionType::kText ? "" : to_text(static_cast<std::int64_t>(info.maximum) + 1);
}

/// The flag that errors name: the first long spelling.
inline std::string long_flag(const OptionInfo& info) {
  return *std::ranges::find_if(info.flags, [](const std::string& flag) { return flag.starts_with("--"); });
}

}  // namespace dllm::test
