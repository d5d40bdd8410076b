#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "npu/device/device.h"
#include "npu/dram/statistics.h"

namespace dllm::npu {

/// What a step does, as far as energy is concerned.
struct Work {
  double macs = 0;
  double matrix_cycles = 0;                ///< of the array
  double lane_ops = 0;                     ///< vector instructions x lanes
  double read_bytes = 0, write_bytes = 0;  ///< of DRAM
};

/// Joules of a step, by where they go.
struct StepEnergy {
  double matrix = 0, vector = 0, sram = 0;
  double dram_core = 0, dram_io = 0, dram_background = 0;
  double fixed = 0;  ///< leakage and clock over the step's time
  double total() const { return matrix + vector + sram + dram_core + dram_io + dram_background + fixed; }
};

/// Energy of work that takes `seconds`, from the device's [energy] table. Rows of DRAM are taken as read whole: one
/// activation per row of bytes.
StepEnergy step_energy(const Device& device, const Work& work, double seconds);

/// Joules of simulated DRAM traffic, from its counts: bursts, activations and time of one pseudo-channel.
double dram_energy(const Device& device, const dram::PseudochannelStats& stats);

/// Silicon area, mm2 at 7 nm, from published synthesis points and open cell libraries (npu-reference D.3).
struct AreaModel {
  double matrix = 0, vector = 0, scalar = 0, vector_sram = 0, matrix_sram = 0;
  double total() const { return matrix + vector + scalar + vector_sram + matrix_sram; }
};
AreaModel area(const Device& device);

/// The published synthesis points of d-PLENA's vector unit (Table IV: ASAP7, 1 GHz) and what the fit says of them.
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
