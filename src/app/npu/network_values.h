#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "app/cli/verb.h"
#include "app/npu/flags.h"
#include "npu_compiler/workload/network.h"

namespace dllm::app {

/// --values, --input and --save: what a network computes on a device, and how far that is from float32.
struct NetworkValues {
  std::string mode = "executor";
  bool asked = false;  ///< --values was given
  std::vector<std::string> inputs, saves;

  void add(Flags& flags);
  /// Runs the network with the inputs that were given, or the file's sample, and adds "values" to the report. Outputs
  /// are written where --save says. Errors: kUsage, and those of the backend.
  Expected<void> run(Session& session, const npu::Network& network, const npu::Device& device,
                     const DeviceFlags& chosen, nlohmann::ordered_json& json) const;
  static std::string text(const nlohmann::ordered_json& json);
  /// A name of the file, for the terminal: without control characters.
  static std::string shown(const std::string& name);

 private:
  Expected<bool> wanted(const npu::Network& network) const;
  Expected<std::vector<npu::NetworkSample>> given(const npu::Network& network) const;
};

}  // namespace dllm::app
