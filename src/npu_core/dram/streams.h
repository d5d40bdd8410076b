#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dllm/error.h"
#include "npu_core/dram/memory_system.h"

namespace dllm::npu::dram {

enum class Pattern {
  kSequential,  ///< consecutive addresses
  kRandom,      ///< uniform over the footprint, aligned to the request
  kStrided,     ///< `stride` bytes apart
};

/// Synthetic traffic from one closed-loop client with up to `outstanding` requests in flight: it waits for the oldest
/// 64th of them, at least one, and then issues as many new ones.
struct StreamSpec {
  Pattern pattern = Pattern::kSequential;
  std::uint64_t requests = 100000;
  std::uint64_t request_bytes = 64;
  std::uint64_t stride = 0;  ///< kStrided
  std::uint64_t base = 0;
  std::uint64_t footprint = 0;    ///< bytes; 0: the whole memory
  double write_fraction = 0;      ///< of the requests, drawn at random from the seed
  bool separate_writes = false;   ///< sequential and strided writes go to the upper half of the footprint
  std::uint64_t outstanding = 0;  ///< requests; 0: 256 per pseudo-channel, enough to saturate
  std::uint64_t seed = 0;
};

struct StreamResult {
  std::uint64_t bytes = 0;
  double seconds = 0;  ///< of virtual time, until the last data
  double gbps = 0;     ///< 1e9 bytes per second
  double fraction_of_peak = 0;
};

/// Errors: a request that does not fit the memory, an empty mix.
Expected<StreamResult> run_stream(MemorySystem& memory, const StreamSpec& spec);

/// One line of a trace: "R 0x1000 64 120": direction, byte address, bytes, arrival in client cycles.
struct TraceRequest {
  Access access = Access::kRead;
  std::uint64_t address = 0, bytes = 0;
  ClientCycle arrival = 0;
};
/// Errors: malformed lines, with their number. Empty lines and text after a '#' are ignored.
Expected<std::vector<TraceRequest>> parse_trace(const std::string& text, const std::string& file);

/// Open loop: requests arrive at the times in the trace. Returns the completion cycle of each.
Expected<std::vector<ClientCycle>> run_trace(MemorySystem& memory, const std::vector<TraceRequest>& requests);

StreamResult summary(const MemorySystem& memory);

}  // namespace dllm::npu::dram
