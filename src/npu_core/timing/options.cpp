#include "npu_core/timing/options.h"
#include "npu_core/device/issue_keys.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace dllm::npu {

Expected<void> TimingOptions::validate() const {
  const auto check = [](const char* name, int value, int low, int high) -> Expected<void> {
    if (value >= low && value <= high) return {};
    return Error{ErrorCode::kUsage, fmt::format("{} is {}", name, value), "timing options",
                 fmt::format("{} to {}", low, high)};
  };
  for (const auto& result :
       {check("width", width, 1, 8), check("queue", queue, 1, 256), check("vector_starts", vector_starts, 1, 8),
        check("accumulators", accumulators, 1, 8), check("branch_bubble", branch_bubble, 0, 64)})
    if (!result) return result.error();
  return {};
}

void apply_issue(const IssueKeys& issue, TimingOptions& options) {
  options.width = static_cast<int>(issue.width);
  options.queue = static_cast<int>(issue.queue);
  options.vector_starts = static_cast<int>(issue.vector_starts);
  options.chaining = issue.chaining != 0;
  options.accumulators = static_cast<int>(issue.accumulators);
}

std::string_view name_of(IssueMode mode) { return mode == IssueMode::kSerial ? "serial" : "overlapped"; }

std::optional<IssueMode> issue_mode_from_name(std::string_view name) {
  for (const IssueMode mode : {IssueMode::kOverlapped, IssueMode::kSerial})
    if (name == name_of(mode)) return mode;
  return std::nullopt;
}

nlohmann::ordered_json timing_options_json(const TimingOptions& options) {
  nlohmann::ordered_json json = {{"issue", name_of(options.issue)},
                                 {"compat_mlen", options.compat_mlen},
                                 {"compat_scale64", options.compat_scale64}};
  if (options.issue == IssueMode::kSerial) return json;
  json.update({{"width", options.width},
               {"queue", options.queue},
               {"vector_starts", options.chaining ? options.vector_starts : 1},
               {"chaining", options.chaining},
               {"accumulators", options.accumulators},
               {"asynchronous", options.asynchronous},
               {"branch_bubble", options.branch_bubble},
               {"repeat", options.repeat}});
  if (options.repeat) json["tolerance"] = options.tolerance;
  return json;
}

}  // namespace dllm::npu
