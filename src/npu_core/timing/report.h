#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "npu_core/device/energy.h"
#include "npu_core/machine/machine.h"
#include "npu_core/timing/accounts.h"
#include "npu_core/timing/latency.h"
#include "npu_core/timing/options.h"

namespace dllm::npu {

struct Device;

/// Cycles by class of instruction, as the published accounts sum them; under serial issue they add up to the total.
struct ClassCycles {
  Cycle matrix = 0, vector = 0, scalar = 0, control = 0, memory = 0;
  Cycle hidden = 0;  ///< the half of S_MAP_V_FP that the published accounts omit from `scalar`
  Cycle sum() const { return matrix + vector + scalar + control + memory + hidden; }
};

/// Figures of a named part of the program, without the parts nested in it. The cycles of all regions add up to the
/// total.
struct RegionTiming {
  std::string name;          ///< "" for instructions in no region
  std::uint64_t visits = 0;  ///< times the front end entered it
  std::uint64_t instructions = 0;
  Cycle cycles = 0;                       ///< of the front end, at this region's instructions
  Cycle first = -1, last = 0;             ///< span from the first dispatch to the last completion
  std::array<Cycle, kCauses> stall = {};  ///< included above: stalled, by cause
  std::array<Cycle, kEngines> busy = {};  ///< new busy cycles of each engine
  double macs = 0, lane_ops = 0;
  std::uint64_t read_bytes = 0, write_bytes = 0;
};

/// Figures of one mnemonic.
struct OpTiming {
  std::uint64_t count = 0;
  Cycle cycles = 0;  ///< occupied where it executes, from start to the next start
};

/// How the DRAM's time was spent, summed over pseudo-channels, in nanoseconds.
struct DramTiming {
  double elapsed_ns = 0;
  int pseudochannels = 0;
  double data = 0, refresh = 0, turnaround = 0, row = 0, column = 0, mode = 0, idle = 0;
  std::uint64_t row_hits = 0, row_misses = 0, row_conflicts = 0, refreshes = 0;
  double joules = 0;
};

struct TimingReport {
  Cycle total = 0;
  std::uint64_t instructions = 0;
  ClassCycles classes;
  std::array<EngineTime, kEngines> engines;
  std::vector<RegionTiming> regions;
  std::array<OpTiming, kOpCount> ops = {};
  std::array<Cycle, kPipes> pipes = {};
  std::uint64_t chained_reads = 0, port_cycles = 0;
  std::uint64_t read_bytes = 0, write_bytes = 0;
  std::uint64_t instruction_bytes = 0;  ///< from memory into instruction SRAM
  double macs = 0, lane_ops = 0;
  DramTiming dram;
  StepEnergy energy;
  double joules = 0;                       ///< total
  std::uint64_t skipped_periods = 0;       ///< periods of equal regions copied from a simulated one
  std::uint64_t skipped_instructions = 0;  ///< instructions in those
  double host_seconds = 0;                 ///< wall time of the simulation

  double seconds(const Device& device) const;
};

/// All figures with their units, and the resolved configuration.
nlohmann::ordered_json timing_json(const TimingReport& report, const Device& device, const MachineConfig& machine,
                                   const TimingOptions& options);

/// A page of text: total, engines with their stalls, regions.
std::string timing_text(const TimingReport& report, const Device& device);

/// The functional machine's configuration, resolved.
nlohmann::ordered_json machine_json(const MachineConfig& machine);

}  // namespace dllm::npu
