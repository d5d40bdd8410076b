#pragma once

#include <array>
#include <vector>

#include "npu_core/timing/report.h"

namespace dllm::npu {

/// A run of equal sequences of regions: the layers of a model.
struct PeriodicRegions {
  std::vector<std::uint32_t> begins;  ///< first instruction of each period; empty: there are none
  std::size_t first = 0;              ///< index into Program::regions of the first period's first region
  std::size_t length = 0;             ///< regions per period
};

/// The longest run of at least four periods among the top-level regions. Regions are equal if their names are, apart
/// from digits, and their instructions, apart from integer immediates, which hold addresses.
PeriodicRegions find_periods(const Program& program);

/// All totals that a period increases.
struct TimingSnapshot {
  std::array<EngineTime, kEngines> engines;
  std::array<Cycle, kOpCount> op_cycles = {};
  std::array<Cycle, kPipes> pipes = {};
  std::uint64_t chained = 0, ports = 0;

  Cycle front() const { return engines[index_of(Engine::kFrontEnd)].settled; }
};

/// The period whose times are used for those that were not simulated.
class RepeatedPeriod {
 public:
  void add(std::uint32_t period, TimingSnapshot snapshot);
  /// At the start of `period` of `count`: whether it and all later ones except the last need no simulation. Never for
  /// periods shorter than `shortest`: too few refreshes fall into them to be representative.
  bool settled(std::uint32_t period, std::uint32_t count, double tolerance, Cycle shortest);
  /// Adds the skipped periods to the report of the simulated ones. `regions`: as TimingReport::regions.
  void restore(const PeriodicRegions& periods, std::vector<RegionTiming>& regions, TimingReport& report) const;

 private:
  std::vector<TimingSnapshot> snapshots_;  ///< at the beginning of each simulated period
  std::uint32_t left_out_ = 0;
};

}  // namespace dllm::npu
