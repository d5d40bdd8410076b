#include "app/npu/timing_flags.h"

#include <fmt/format.h>

#include "app/cli/options.h"
#include "app/npu/flags.h"
#include "base/try.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
void TimingFlags::number(Flags& flags, const char* name, const char* help, Member member) {
  flags.add({.names = {name},
             .value = "N",
             .help = help,
             .default_text = "the device's",
             .apply = [this, member](const std::string& text) -> Expected<void> {
               const auto value = parse_number<int>(text);
               if (!value || *value < 1) return bad_value(fmt::format("'{}' is not a whole number above 0", text));
               given_.emplace_back(member, *value);  // resolve() knows the upper limits
               return {};
             }});
}

void TimingFlags::add_cache(Flags& flags) {
  flags.add({.names = {"--timing-cache"},
             .value = "DIR|auto|off",
             .help = "cache directory of reports; auto: $XDG_CACHE_HOME/dllm/npu or ~/.cache/dllm/npu",
             .default_text = "auto",
             .takes_path = true,
             .apply = into(cache_)});
}

std::string TimingFlags::cache_folder() const {
  if (cache_ == "auto") return npu_cache_folder();
  return cache_ == "off" ? "" : cache_;
}

Expected<void> TimingFlags::resolve(npu::Device& device) {
  npu::IssueKeys& issue = device.issue;
  for (const auto& [member, value] : given_) issue.*member = value;
  if (options.issue == npu::IssueMode::kSerial)
    issue = {.width = 1, .queue = 1, .vector_starts = 1, .chaining = 0, .accumulators = 1};
  auto valid = npu::check_ranges(device);
  if (valid) valid = npu::validate(device);
  if (!valid) {
    // The profile itself is valid, so a flag has made it impossible.
    Error error = std::move(valid).error();
    if (!given_.empty()) error.code = ErrorCode::kUsage;
    return error;
  }
  npu::apply_issue(device.issue, options);
  return {};
}

void TimingFlags::add(Flags& flags) {
  flags.group("Issue");
  flags.add({.names = {"--issue"},
             .value = "MODE",
             .help = "overlapped: in order into the units' queues; serial: one instruction at a time, as published",
             .default_text = "overlapped",
             .choices = {"overlapped", "serial"},
             .apply = [this](const std::string& text) -> Expected<void> {
               const auto mode = npu::issue_mode_from_name(text);
               if (!mode) return bad_value(fmt::format("'{}' is unknown", text), "overlapped or serial");
               options.issue = *mode;
               return {};
             }});
  using Issue = npu::IssueKeys;
  number(flags, "--issue-width", "instructions dispatched per cycle", &Issue::width);
  number(flags, "--issue-queue", "length of each unit's instruction queue", &Issue::queue);
  number(flags, "--vector-starts", "vector instructions that start per cycle, on different pipes",
         &Issue::vector_starts);
  number(flags, "--accumulators", "results of the array that wait for their write-out; 1: no double buffering",
         &Issue::accumulators);
  const auto off = [&flags](const char* name, const char* help, bool& target, bool value) {
    flags.add({.names = {name}, .help = help, .apply = [&target, value](const std::string& text) -> Expected<void> {
                 const auto given = parse_bool(text);
                 if (!given) return bad_value(fmt::format("'{}' is neither true nor false", text));
                 target = *given ? value : !value;
                 return {};
               }});
  };
  flags.add({.names = {"--no-chaining"},
             .help = "read every operand from the vector SRAM, start one vector instruction per cycle",
             .apply = [this](const std::string& text) -> Expected<void> {
               const auto given = parse_bool(text);
               if (!given) return bad_value(fmt::format("'{}' is neither true nor false", text));
               given_.emplace_back(&Issue::chaining, *given ? 0 : 1);
               return {};
             }});
  off("--blocking-transfers", "a transfer holds the front end until its last byte", options.asynchronous, false);
  off("--compat-mlen", "M_MM takes MLEN cycles, as in PLENA's emulator", options.compat_mlen, true);
  off("--compat-scale64", "one 64-byte scale block per vector, as in d-PLENA's", options.compat_scale64, true);
}

}  // namespace dllm::app
