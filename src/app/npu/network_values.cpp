#include "app/npu/network_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/cli/report.h"
#include "app/cli/written_files.h"
#include "base/input_file.h"
#include "base/quote_name.h"
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
                   asked = true;
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

/// A list of numbers has no shape; dimensions of one entry say nothing about the order of the others.
Expected<void> check_shape(const npu::Network& network, const std::string& name, const NpyArray& array) {
  const npu::NetworkInput* in = network.input(name);
  if (in == nullptr || array.shape.size() < 2) return {};
  std::vector<std::int64_t> given(array.shape.begin(), array.shape.end()), needed = in->shape;
  std::erase(given, 1);
  std::erase(needed, 1);
  if (given == needed) return {};
  return Error{ErrorCode::kUsage,
               fmt::format("an array of {} for {}, which has {}", fmt::join(array.shape, " x "), quote_name(name),
                           fmt::join(in->shape, " x ")),
               "--input", "transpose the array, or give its numbers as a list in this order"};
}

Expected<Values> NetworkValues::given(const npu::Network& network) const {
  Values values;
  for (const std::string& text : inputs) {
    DLLM_TRY(const auto named, named_file(text, "--input"));
    DLLM_TRY(const std::string bytes, read_input(named.second));
    DLLM_TRY(const NpyArray array, parse_npy(bytes, named.second));
    DLLM_CHECK_OK(check_shape(network, named.first, array));
    values.push_back({named.first, {}});
    for (const double x : array.values) values.back().values.push_back(static_cast<float>(x));
  }
  return inputs.empty() ? network.sample_inputs : values;
}

/// Whether there is something to compute. Errors: kUsage, if what was asked for needs it and there is nothing.
Expected<bool> NetworkValues::wanted(const npu::Network& network) const {
  const bool none = mode == "none";
  if (!none && (!inputs.empty() || !network.sample_inputs.empty())) return true;
  const char* flag = !saves.empty() ? "--save" : !inputs.empty() ? "--input" : asked && !none ? "--values" : nullptr;
  if (flag == nullptr) return false;
  return Error{ErrorCode::kUsage, none ? "no values are computed" : "there are no inputs to compute values from", flag,
               none ? "leave out --values none" : "the file has no sample: give --input NAME=FILE.npy"};
}

Expected<void> NetworkValues::run(Session& session, const npu::Network& network, const npu::Device& device,
                                  const DeviceFlags& chosen, Json& json) const {
  DLLM_TRY(const bool any, wanted(network));
  if (!any) return {};
  DLLM_TRY(const Values in, given(network));
  DLLM_TRY(const std::unique_ptr<Backend> backend, backend_for(mode, network, device, chosen));
  DLLM_TRY(const Values out, npu::run_network(*backend, network, in));
  json["values"] = {{"by", mode}};
  if (inputs.empty()) json["values"]["against_float32"] = difference_json(out, network.sample_outputs);
  for (const std::string& text : saves) {
    DLLM_TRY(const auto named, named_file(text, "--save"));
    const auto found = std::ranges::find(out, named.first, &npu::NetworkSample::name);
    if (found == out.end())
      return Error{ErrorCode::kUsage, fmt::format("the network has no output {}", quote_name(named.first)), "--save",
                   ""};
    DLLM_CHECK_OK(write_result(session, named.second, npy_of(found->values)));
  }
  return {};
}

std::string NetworkValues::shown(const std::string& name) {
  const std::string quoted = quote_name(name);
  return quoted.substr(1, quoted.size() - 2);
}

std::string NetworkValues::text(const Json& json) {
  if (!json.contains("values") || !json["values"].contains("against_float32")) return "";
  std::string text;
  for (const Json& one : json["values"]["against_float32"])
    text += fmt::format("{} ({}): from float32 by at most {:.3g}, {:.3g} of its root mean square\n",
                        shown(one["output"].get<std::string>()), json["values"]["by"].get<std::string>(),
                        one["largest"].get<double>(), one["relative_rms"].get<double>());
  return text;
}

}  // namespace dllm::app
