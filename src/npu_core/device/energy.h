#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "npu_core/dram/statistics.h"

namespace dllm::npu {

struct Device;

/// The work of a step, as the energy model needs it.
struct Work {
  double macs = 0;
  double matrix_cycles = 0;                ///< of the array
  double lane_ops = 0;                     ///< vector instructions x lanes
  double read_bytes = 0, write_bytes = 0;  ///< of DRAM, including instructions
  double instructions = 0;                 ///< executed
  /// Rows of vector SRAM read and written, as simulated; negative: estimated from lane_ops and matrix_cycles.
  double vector_rows = -1;
  double matrix_bytes_written = 0;  ///< of matrix SRAM
};

/// Joules of a step, by consumer.
struct StepEnergy {
  double matrix = 0;  ///< with the conversion of its input
  double vector = 0, sram = 0;
  double convert = 0;      ///< of what is written to memory
  double instruction = 0;  ///< fetch from instruction SRAM, decode and issue
  double dram_core = 0, dram_io = 0, dram_background = 0;
  double phy = 0;    ///< interfaces, active or idle, over the step's time
  double fixed = 0;  ///< leakage and clock tree over the step's time
  double total() const {
    return matrix + vector + sram + convert + instruction + dram_core + dram_io + dram_background + phy + fixed;
  }
};

/// Energy of work that takes `seconds`, from the device's [energy] table at its clock and supply (power.h). Assumes
/// that DRAM rows are read whole: one activation per row of bytes.
StepEnergy step_energy(const Device& device, const Work& work, double seconds);

/// Joules of simulated DRAM traffic, from its counters: bursts, activations and time of one pseudo-channel.
double dram_energy(const Device& device, const dram::PseudochannelStats& stats);

/// Silicon area, mm2 at 7 nm: units of rtl/ in the cells of ASAP7 (unit_costs.def), and published synthesis points;
/// docs/design/npu-energy.md lists the assumptions. No wires, no network on chip.
struct AreaModel {
  double matrix = 0;  ///< with the converters of its input
  double vector = 0, scalar = 0;
  double issue = 0;      ///< front end, queues, a second vector start, chaining, further accumulators
  double transfers = 0;  ///< DMA engines, converters on the way from and to memory
  double vector_sram = 0, matrix_sram = 0, scalar_sram = 0, instruction_sram = 0;
  double phy = 0;  ///< of the stacks
  double total() const {
    return matrix + vector + scalar + issue + transfers + vector_sram + matrix_sram + scalar_sram + instruction_sram +
           phy;
  }
};
AreaModel area(const Device& device);

nlohmann::ordered_json area_json(const AreaModel& area);
nlohmann::ordered_json energy_json(const StepEnergy& energy);

/// The published synthesis points of d-PLENA's vector unit (Table IV: ASAP7, 1 GHz) and the fit's values for them.
struct SynthesisPoint {
  std::int64_t vlen;
  double area_mm2, power_mw;
};
const std::vector<SynthesisPoint>& vector_unit_points();

/// A straight line through points, by least squares: value = slope x + offset, and the largest relative residual.
struct LinearFit {
  double slope = 0, offset = 0, worst_residual = 0;
  double at(double x) const { return slope * x + offset; }
};
LinearFit fit_line(const std::vector<double>& x, const std::vector<double>& y);
/// mm2 and mW (at 1 GHz, full activity) of the vector unit against VLEN.
LinearFit vector_area_fit();
LinearFit vector_power_fit();

}  // namespace dllm::npu
