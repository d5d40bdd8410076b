#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "npu_compiler/workload/network.h"

namespace dllm::npu {

/// The plan of a network's one step: row r at position r, with what `inputs` give for it.
/// Errors: kUsage (an input that is missing, unknown or of another size, an id outside the table).
Expected<StepPlan> network_plan(const Network& network, std::span<const NetworkSample> inputs);

/// Runs the network on a backend of its graph, and returns its outputs in their order. Errors: network_plan()'s, the
/// backend's, kMismatch (a backend of another graph).
Expected<std::vector<NetworkSample>> run_network(Backend& backend, const Network& network,
                                                 std::span<const NetworkSample> inputs);

/// How far numbers are from those that are expected.
struct NetworkDifference {
  double largest = 0;   ///< absolute
  double relative = 0;  ///< root of the squares' sum, over that of the expected numbers
};
NetworkDifference difference(std::span<const float> values, std::span<const float> expected);

}  // namespace dllm::npu
