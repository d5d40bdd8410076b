#pragma once

#include "npu_core/device/array_keys.h"
#include "npu_core/device/latency_keys.h"
#include "npu_core/machine/machine.h"
#include "npu_core/timing/clock.h"
#include "npu_core/timing/options.h"

namespace dllm::npu {

/// The functional parts of the vector unit. Each takes a row per cycle; instructions on different ones overlap.
enum class Pipe : std::uint8_t {
  kAdd,
  kMul,
  kExp,
  kReci,
  kMax,
  kSum,
  kScan,
  kShift,
  kHadamard,
  kTopK,
  kSelect,
  kDraw,
  kNone
};
inline constexpr std::size_t kPipes = 12;
std::string_view name_of(Pipe pipe);

/// The cost of an instruction where it executes, in cycles.
struct Cost {
  Cycle latency = 1;   ///< start to result; all of it under serial issue
  Cycle occupies = 1;  ///< start to the next instruction on the same part
  Pipe pipe = Pipe::kNone;
  double macs = 0;
  std::int64_t lane_ops = 0;  ///< vector lanes x instructions
};

/// Whether the instruction loads packed weights, which vector code unpacks.
bool loads_packed(const IssueEvent& event);

/// Latency rules of the instruction table, in cycles of a device (docs/design/npu-timing.md). Each rule is implemented
/// only here; overlapped and serial issue use the same numbers.
class LatencyTable {
 public:
  LatencyTable(const ArrayKeys& array, const LatencyKeys& latency, const MachineConfig& machine,
               const TimingOptions& options)
      : array_(array), latency_(latency), machine_(machine), options_(options) {}

  Cost cost(const IssueEvent& event);

  /// Fill and drain of the array: from the last operand in to the last result out of the adder tree.
  Cycle fill() const;
  /// Cycles of the drain engine per write-out, one row of a sub-array per cycle.
  Cycle drain(const IssueEvent& event) const;

 private:
  Cycle tiles(std::int64_t count);
  Cost matrix(const IssueEvent& event);
  Cost draw(const MachineState& state) const;

  const ArrayKeys& array_;
  const LatencyKeys& latency_;
  const MachineConfig& machine_;
  const TimingOptions& options_;
  double tile_rest_ = 0;  ///< fraction of a cycle carried over by tiles with a fractional number of cycles
};

}  // namespace dllm::npu
