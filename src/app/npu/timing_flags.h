#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/cli/flags.h"
#include "npu_core/device/issue_keys.h"
#include "npu_core/timing/simulator.h"

namespace dllm::app {

/// How instructions are issued: --issue and the front end's numbers, shared by the verbs that simulate time. Defaults
/// are the device's ([issue]).
struct TimingFlags {
  npu::TimingOptions options;

  void add(Flags& flags);
  /// --timing-cache, of the verbs that keep reports of simulated time.
  void add_cache(Flags& flags);
  /// Where they are kept; "": nowhere.
  std::string cache_folder() const;
  /// Makes device and options consistent: given numbers change the device, so that its area and energy follow. Serial
  /// issue is a device without queues, chaining and double buffering. Errors: numbers out of range.
  Expected<void> resolve(npu::Device& device);

 private:
  using Member = std::int64_t npu::IssueKeys::*;
  void number(Flags& flags, const char* name, const char* help, Member member);

  std::vector<std::pair<Member, std::int64_t>> given_;
  std::string cache_ = "auto";
};

}  // namespace dllm::app
