#include "npu_core/device/energy.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "npu_core/device/device.h"
#include "npu_core/device/power.h"
#include "npu_core/device/silicon.h"

namespace dllm::npu {
namespace {

constexpr double kPico = 1e-12;
constexpr double kDecodePj = 1.0;  // assumed: decoding and issuing an instruction
constexpr double kWires = 1.45;    // wires and glitches, on top of switched cells

}  // namespace

StepEnergy step_energy(const Device& device, const Work& work, double seconds) {
  const EnergyKeys& e = device.energy;
  const ArrayKeys& a = device.array;
  const PowerScale scale = power_scale(device.clock);
  const auto mlen = static_cast<double>(a.mlen), vlen = static_cast<double>(a.vlen);
  StepEnergy energy;
  // The gates that issue and latencies add to a lane switch with it.
  const double added = issue_um2_per_lane(device.issue) + latency_um2_per_lane(device);
  const double lane = 1 + added * 1e-6 / vector_area_fit().slope;
  energy.vector = work.lane_ops * e.vector_lane_pj * lane * scale.logic * kPico;
  // At full rate the array takes MLEN weights and MLEN BF16 activations per BLEN / tile_cycles cycles.
  const double operand_cycles = work.matrix_cycles * static_cast<double>(a.blen) / a.tile_cycles;
  const FormatCosts& formats = device.numerics.costs;
  const double converted = operand_cycles * mlen * formats.input_pj * kWires;
  energy.matrix = (work.macs * e.mac_pj * formats.mac_ratio + converted) * scale.logic * kPico;
  energy.convert = work.write_bytes / device.numerics.kv_bytes * formats.store_pj * kWires * scale.logic * kPico;
  // A vector instruction reads two operands and writes one; chaining saves about one of them (vector_kernels.h).
  const double accesses = device.issue.chaining != 0 ? 2 : 3;
  const double vector_bytes =
      work.vector_rows >= 0 ? work.vector_rows * vlen * 2 : operand_cycles * mlen * 2 + work.lane_ops * accesses * 2;
  const double matrix_bytes = operand_cycles * mlen * formats.matrix_bytes + work.matrix_bytes_written;
  energy.sram =
      (vector_bytes * port_energy(device.sram.vector_ports) + matrix_bytes * port_energy(device.sram.matrix_ports)) *
      e.sram_pj_per_byte * scale.sram * kPico;
  energy.instruction = work.instructions * (4 * e.sram_pj_per_byte * scale.sram + kDecodePj * scale.logic) * kPico;
  const dram::DramStandard& standard = device.memory_config.standard;
  const double row_bytes = static_cast<double>(standard.columns) * standard.burst_bytes;
  const double bytes = work.read_bytes + work.write_bytes;
  const dram::DramCosts costs = device.memory_costs();
  energy.dram_core = (work.read_bytes * costs.read_pj_per_byte + work.write_bytes * costs.write_pj_per_byte +
                      bytes / row_bytes * costs.activate_pj) *
                     kPico;
  energy.dram_io = bytes * costs.io_pj_per_byte * kPico;
  energy.dram_background =
      costs.background_mw * 1e-3 * device.memory_config.channels * standard.pseudochannels * seconds;
  energy.phy = costs.phy_idle_w * static_cast<double>(device.memory.stacks) * seconds;
  const AreaModel silicon = area(device);
  const double mm2 = silicon.total() - silicon.phy;
  energy.fixed = (mm2 * (e.leakage_w_per_mm2 * scale.leakage + e.clock_w_per_mm2 * scale.clock) + e.static_w) * seconds;
  return energy;
}

double dram_energy(const Device& device, const dram::PseudochannelStats& stats) {
  const dram::DramCosts costs = device.memory_costs();
  const dram::DramStandard& standard = device.memory_config.standard;
  const double read = static_cast<double>(stats.reads) * standard.burst_bytes;
  const double written = static_cast<double>(stats.writes) * standard.burst_bytes;
  const double seconds = standard.ticks_to_ns(static_cast<double>(stats.time.total())) * 1e-9;
  return (read * costs.read_pj_per_byte + written * costs.write_pj_per_byte + (read + written) * costs.io_pj_per_byte +
          static_cast<double>(stats.activates) * costs.activate_pj) *
             kPico +
         costs.background_mw * 1e-3 * seconds;
}

const std::vector<SynthesisPoint>& vector_unit_points() {
  static const std::vector<SynthesisPoint> points = {
      {512, 0.731, 381.72}, {1024, 1.464, 762.65}, {2048, 2.931, 1524.53}};
  return points;
}

LinearFit fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sx += x[i];
    sy += y[i];
    sxx += x[i] * x[i];
    sxy += x[i] * y[i];
  }
  LinearFit fit;
  fit.slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
  fit.offset = (sy - fit.slope * sx) / n;
  for (std::size_t i = 0; i < x.size(); ++i)
    fit.worst_residual = std::max(fit.worst_residual, std::abs(fit.at(x[i]) - y[i]) / y[i]);
  return fit;
}

namespace {

LinearFit fit_points(double SynthesisPoint::* member) {
  std::vector<double> x, y;
  for (const SynthesisPoint& point : vector_unit_points()) {
    x.push_back(static_cast<double>(point.vlen));
    y.push_back(point.*member);
  }
  return fit_line(x, y);
}

}  // namespace

LinearFit vector_area_fit() {
  static const LinearFit fit = fit_points(&SynthesisPoint::area_mm2);
  return fit;
}
LinearFit vector_power_fit() {
  static const LinearFit fit = fit_points(&SynthesisPoint::power_mw);
  return fit;
}

nlohmann::ordered_json energy_json(const StepEnergy& e) {
  return {{"matrix_j", e.matrix},
          {"vector_j", e.vector},
          {"convert_j", e.convert},
          {"sram_j", e.sram},
          {"instruction_j", e.instruction},
          {"dram_core_j", e.dram_core},
          {"dram_io_j", e.dram_io},
          {"dram_background_j", e.dram_background},
          {"phy_j", e.phy},
          {"static_j", e.fixed},
          {"total_j", e.total()}};
}

}  // namespace dllm::npu
