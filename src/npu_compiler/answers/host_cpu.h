#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "npu_compiler/answers/host_queue.h"

namespace dllm::npu {

struct Device;

/// Work of the host's processor.
struct HostWork {
  double seconds = 0;
  double bytes = 0;  ///< of memory
  HostWork& operator+=(const HostWork& other) {
    seconds += other.seconds;
    bytes += other.bytes;
    return *this;
  }
};

/// Rows that an operator works on: 0 for the head of a step that scores nothing.
std::int64_t operator_rows(const Graph& graph, const Op& op);

/// What an operator needs, whatever the rates: operations by kind, and bytes of memory.
struct HostAmounts {
  double int8 = 0, f16 = 0, f32 = 0, bytes = 0;
};
HostAmounts host_amounts(const Graph& graph, const Device& device, const Op& op, std::int64_t sequences,
                         std::int64_t keys);

/// One operator on the host: the longer of its arithmetic and its memory traffic, at the rates of the device's [host].
/// `sequences` x `keys`: positions that the step's rows see. Weights are read once. No work without a described host.
HostWork host_operator(const Graph& graph, const Device& device, const Op& op, std::int64_t sequences,
                       std::int64_t keys);

/// The whole step: operators one after the other.
HostWork host_step(const Graph& graph, const Device& device, std::int64_t sequences, std::int64_t keys);

/// ... of them as work that others run at the same time.
std::vector<Stretch> host_stretches(const Graph& graph, const Device& device, std::int64_t sequences,
                                    std::int64_t keys);

/// Reading `rows` rows of logits that the device has written, and reducing them.
HostWork host_reduction(const Device& device, std::int64_t rows, std::int64_t vocab);

}  // namespace dllm::npu
