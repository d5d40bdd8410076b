#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dllm::npu {

/// Time in cycles of the device's clock.
using Cycle = std::int64_t;

/// Where instructions execute. The front end executes integer and control instructions itself.
enum class Engine : std::uint8_t { kFrontEnd, kMatrix, kDrain, kVector, kScalar, kLoadMatrix, kLoadVector, kStore };
inline constexpr std::size_t kEngines = 8;
std::string_view name_of(Engine engine);

/// Why an engine was idle, or why the front end issued nothing.
enum class Cause : std::uint8_t {
  kIssue,      ///< the front end was issuing instructions for other engines
  kMemory,     ///< waiting for data from DRAM
  kMatrix,     ///< waiting for a result of the matrix unit
  kVector,     ///< waiting for a result of the vector unit
  kScalar,     ///< waiting for a result of a scalar unit
  kBuffer,     ///< the destination was still being read or written
  kPorts,      ///< the ports of the vector SRAM were busy
  kQueue,      ///< the unit's queue was full
  kTransfers,  ///< the maximum number of transfers was in flight
  kFence,      ///< C_FENCE
  kSerial,     ///< serial issue: another instruction was executing
  kDrain,      ///< all work was issued, the last of it was finishing elsewhere
};
inline constexpr std::size_t kCauses = 12;
std::string_view name_of(Cause cause);

inline std::size_t index_of(Engine engine) { return static_cast<std::size_t>(engine); }
inline std::size_t index_of(Cause cause) { return static_cast<std::size_t>(cause); }

/// The latest of several conditions, and which one it was.
struct Earliest {
  Cycle at = 0;
  Cause cause = Cause::kIssue;

  void need(Cycle cycle, Cause why) {
    if (cycle > at) at = cycle, cause = why;
  }
};

}  // namespace dllm::npu
