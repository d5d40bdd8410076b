#include "app/npu/network_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/report.h"
#include "app/cli/written_files.h"
#include "base/input_file.h"
#include "base/thread_pool.h"
#include "base/try.h"
#include "cpu/cpu_backend.h"
#include "format/npy.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/network_run.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/device_machine.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;
using Values = std::vector<npu::NetworkSample>;

/// NAME=FILE
Expected<std::pair<std::string, std::string>> named_file(const std::string& text, const char* flag) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
    return Error{ErrorCode::kUsage, fmt::format("'{}' is no NAME=FILE.npy", text), flag, ""};
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

Expected<std::unique_ptr<Backend>> backend_for(const std::string& mode, const npu::Network& network,
                                               const npu::Device& device, const DeviceFlags& chosen) {
  const auto graph = [&network](StepShape shape) { return network.architecture.build(network.desc, shape); };
  const int threads = default_thread_count();
  if (mode == "machine") {
    DLLM_TRY(const npu::MachineConfig machine, npu::machine_config(device));
    DLLM_TRY(std::unique_ptr<Backend> made,
             npu::NpuBackend::create(network.desc, graph, network.weights, machine, {.positions = network.rows}));
    return made;
  }
  if (mode == "executor") {
    DLLM_TRY(std::vector<npu::Override> changes, chosen.changes());
    DLLM_TRY(npu::accuracy::NumericsProfile profile,
             npu::accuracy::device_numerics(device, chosen.name, std::move(changes)));
    DLLM_TRY(std::unique_ptr<Backend> made,
             npu::accuracy::AccuracyBackend::create(network.desc, graph, network.weights, std::move(profile), threads));
    return made;
  }
  CpuOptions options;
  options.threads = threads;
  options.kv = CpuKvType::kF32;
  options.activations = CpuActivations::kF32;
  DLLM_TRY(std::unique_ptr<Backend> made, CpuBackend::create(network.desc, graph, network.weights, options));
  return made;
}

Json difference_json(const Values& values, const Values& expected) {
  Json all = Json::array();
  for (const npu::NetworkSample& one : expected) {
    const auto found = std::ranges::find(values, one.name, &npu::NetworkSample::name);
    const npu::NetworkDifference d = npu::difference(found->values, one.values);
    all.push_back({{"output", one.name}, {"largest", d.largest}, {"relative_rms", d.relative}});
  }
  return all;
}

}  // namespace

void NetworkValues::add(Flags& flags) {
  flags.add({.names = {"--values"},
             .value = "HOW",
             .help =
                 "numbers in the device's formats by the compiled program on the functional machine (machine) or by "
                 "the accuracy simulator (executor: the same bits); in float32; or none",
             .default_text = mode,
             .choices = {"executor", "machine", "float32", "none"},
             .apply = [this](const std::string& text) -> Expected<void> {
               for (const char* known : {"executor", "machine", "float32", "none"})
                 if (text == known) {
                   mode = text;
                   return {};
                 }
               return bad_value(fmt::format("'{}' is none of executor, machine, float32, none", text));
             }});
  flags.add({.names = {"--input"},
             .value = "NAME=FILE.npy",
             .help = "an input, instead of the sample in the file; may be repeated",
             .takes_path = true,
             .apply = into(inputs)});
  flags.add({.names = {"--save"},
             .value = "OUTPUT=FILE.npy",
             .help = "write an output as a vector of float32; may be repeated",
             .apply = into(saves)});
}

Expected<Values> NetworkValues::given(const npu::Network& network) const {
  Values values;
  for (const std::string& text : inputs) {
    DLLM_TRY(const auto named, named_file(text, "--input"));
    DLLM_TRY(const std::string bytes, read_input(named.second));
    DLLM_TRY(const NpyArray array, parse_npy(bytes, named.second));
    values.push_back({named.first, {}});
    for (const double x : array.values) values.back().values.push_back(static_cast<float>(x));
  }
  return inputs.empty() ? network.sample_inputs : values;
}

Expected<void> NetworkValues::run(Session& session, const npu::Network& network, const npu::Device& device,
                                  const DeviceFlags& chosen, Json& json) const {
  if (mode == "none" || (inputs.empty() && network.sample_inputs.empty())) {
    if (saves.empty()) return {};
    return Error{ErrorCode::kUsage, "there are no values to save", "--save",
                 mode == "none" ? "leave out --values none" : "the file has no sample: give --input NAME=FILE.npy"};
  }
  DLLM_TRY(const Values in, given(network));
  DLLM_TRY(const std::unique_ptr<Backend> backend, backend_for(mode, network, device, chosen));
  DLLM_TRY(const Values out, npu::run_network(*backend, network, in));
  json["values"] = {{"by", mode}};
  if (inputs.empty()) json["values"]["against_float32"] = difference_json(out, network.sample_outputs);
  for (const std::string& text : saves) {
    DLLM_TRY(const auto named, named_file(text, "--save"));
    const auto found = std::ranges::find(out, named.first, &npu::NetworkSample::name);
    if (found == out.end())
      return Error{ErrorCode::kUsage, fmt::format("the network has no output '{}'", named.first), "--save", ""};
    DLLM_CHECK_OK(write_result(session, named.second, npy_of(found->values)));
  }
  return {};
}

std::string NetworkValues::text(const Json& json) {
  if (!json.contains("values") || !json["values"].contains("against_float32")) return "";
  std::string text;
  for (const Json& one : json["values"]["against_float32"])
    text += fmt::format("{} ({}): from float32 by at most {:.3g}, {:.3g} of its root mean square\n",
                        one["output"].get<std::string>(), json["values"]["by"].get<std::string>(),
                        one["largest"].get<double>(), one["relative_rms"].get<double>());
  return text;
}

}  // namespace dllm::app
