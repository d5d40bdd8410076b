#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "format/mapped_file.h"
#include "format/safetensors.h"
#include "npu_compiler/workload/network.h"

namespace dllm::npu {

/// A network's file: `text` is its list of operators, beside tensors w [4][4], table [8][4], b [4], rows [2][4] of
/// indices with a -1, all [8] of indices, and samples of an input x and an output y of 8 numbers.
inline std::string network_file_with(std::string_view text) {
  struct Part {
    const char* name;
    std::vector<int> shape;
  };
  const std::array<Part, 7> parts = {{{"all", {8}},
                                      {"b", {4}},
                                      {"rows", {2, 4}},
                                      {"sample.input.x", {8}},
                                      {"sample.output.y", {8}},
                                      {"table", {8, 4}},
                                      {"w", {4, 4}}}};
  nlohmann::json header = {{"__metadata__", {{kNetworkKey, std::string(text)}}}};
  std::vector<float> numbers;
  for (const auto& [name, shape] : parts) {
    const std::size_t at = numbers.size();
    const auto count = static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), 1, std::multiplies()));
    for (std::size_t i = 0; i < count; ++i)
      numbers.push_back(std::string_view(name) == "rows" ? static_cast<float>(i) - 1 : static_cast<float>(i));
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {4 * at, 4 * numbers.size()}}};
  }
  const std::string head = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(head.size() >> (8 * i));
  file += head;
  const std::size_t data = file.size();
  file.resize(data + 4 * numbers.size());
  std::memcpy(file.data() + data, numbers.data(), 4 * numbers.size());
  return file;
}

/// The body of fuzz/fuzz_network.cpp, which a test replays over its corpus: any text is a network whose arrays fit each
/// other, which builds for several sequences too, or gives a meaningful error.
inline void fuzz_network(std::string_view text) {
  const std::string bytes = network_file_with(text);
  auto file = Safetensors::parse(MappedFile::wrap(std::as_bytes(std::span(bytes)), "input"));
  if (!file) __builtin_trap();
  const auto network = read_network(std::move(*file));
  if (!network) {
    if (network.error().what.empty()) __builtin_trap();
    return;
  }
  const Network& n = **network;
  for (const NetworkSample& sample : n.sample_outputs) {
    const auto found = std::ranges::find(n.outputs, sample.name, &NetworkOutput::name);
    if (found == n.outputs.end() || found->from.size() != sample.values.size()) __builtin_trap();
  }
  for (const StepShape shape : {StepShape{2 * n.step().rows, 2 * n.step().scored}, StepShape{2, 1}, {1009, 17}}) {
    const Graph graph = n.architecture.build(n.desc, shape);
    if (graph.weights.size() != n.weights.size()) __builtin_trap();
  }
}

}  // namespace dllm::npu
