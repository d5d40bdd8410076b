#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "npu_compiler/workload/network.h"

// The text of a network's file: operators, inputs and outputs.

namespace dllm::npu {

/// The most inputs, and the most outputs.
inline constexpr std::size_t kMostNetworkArrays = 256;

/// An operator as the file has it; which members it reads, its kind says.
struct NetworkStep {
  std::string op;
  std::string x, y, z;  ///< values
  std::string weight, bias;
  std::string out;
  double number = 0;  ///< epsilon or scale
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

/// Fills everything but what the graph says, its description and weights. Errors: kInvalidFile.
Expected<std::vector<NetworkStep>> read_network_json(const nlohmann::json& json, Network& network);

/// Whether inputs, outputs and samples fit the graph of the network's own step. Errors: kInvalidFile.
Expected<void> check_network_arrays(const Network& network, const Graph& graph);

}  // namespace dllm::npu
