#include "npu_core/device/energy.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "npu_core/device/device.h"
#include "npu_core/device/power.h"

namespace dllm::npu {
namespace {

constexpr double kPico = 1e-12;
constexpr double kPeUm2 = 63.88;          // INT8 x INT4 PE with accumulator; gate-level synthesis gives 55 to 65
constexpr double kScalarUm2 = 661;        // d-PLENA, Section V
constexpr double kSramMm2PerMib = 0.302;  // ASAP7 8 KiB macro of 2,360 um2
constexpr double kMib = 1024.0 * 1024.0;

// ASAP7 cells: a flip-flop, and a bit of a two-way multiplexer (assumed: 1.6 NAND2).
constexpr double kFlopUm2 = 0.292, kMuxUm2 = 0.14;
constexpr double kSqrtUm2 = 160;  // assumed: V_SQRT_V of a lane, twice rtl/bf16_reciprocal: its table has two binades
constexpr double kDispatchUm2 = 4000;  // assumed: decoder and scoreboard lookups of one instruction per cycle
constexpr double kDecodePj = 1.0;      // assumed: decoding and issuing an instruction
// Assumed, 8,000 to 20,000: a Gumbel draw per cycle, twenty 32-bit multipliers of 600 um2 and two logarithms.
constexpr double kDrawUm2 = 14000;
constexpr int kQueues = 6, kQueueBits = 64, kPipes = 11, kLaneBits = 16, kSumBits = 32;
constexpr double kPortPitch = 0.3;  // assumed: growth of a cell's side per further port

/// A port adds a word line and a pair of bit lines: cells grow in both directions (as in CACTI), lines in one.
double port_area(std::int64_t ports) {
  const double side = 1 + kPortPitch * static_cast<double>(ports - 1);
  return side * side;
}
double port_energy(std::int64_t ports) { return 1 + kPortPitch * static_cast<double>(ports - 1); }

/// Of one lane, um2: output latches of all pipes and the paths from them to the operands of every start; operand and
/// result registers of each start beyond the first.
double issue_um2_per_lane(const IssueKeys& issue) {
  const auto starts = static_cast<double>(issue.chaining != 0 ? issue.vector_starts : 1);
  const double chaining =
      issue.chaining == 0 ? 0 : kPipes * kLaneBits * kFlopUm2 + 2 * starts * kPipes * kLaneBits * kMuxUm2;
  return chaining + (starts - 1) * 3 * kLaneBits * (kFlopUm2 + kMuxUm2);
}

double sram_mm2(double bytes, std::int64_t ports) { return bytes / kMib * kSramMm2PerMib * port_area(ports); }

}  // namespace

StepEnergy step_energy(const Device& device, const Work& work, double seconds) {
  const EnergyKeys& e = device.energy;
  const ArrayKeys& a = device.array;
  const PowerScale scale = power_scale(device.clock);
  const auto mlen = static_cast<double>(a.mlen), vlen = static_cast<double>(a.vlen);
  StepEnergy energy;
  energy.matrix = work.macs * e.mac_pj * scale.logic * kPico;
  // The gates that issue adds to a lane switch with it.
  const double lane = 1 + issue_um2_per_lane(device.issue) * 1e-6 / vector_area_fit().slope;
  energy.vector = work.lane_ops * e.vector_lane_pj * lane * scale.logic * kPico;
  // At full rate the array takes MLEN weights and MLEN BF16 activations per BLEN / tile_cycles cycles.
  const double operand_cycles = work.matrix_cycles * static_cast<double>(a.blen) / a.tile_cycles;
  // A vector instruction reads two operands and writes one; chaining saves about one of them (vector_kernels.h).
  const double accesses = device.issue.chaining != 0 ? 2 : 3;
  const double vector_bytes =
      work.vector_rows >= 0 ? work.vector_rows * vlen * 2 : operand_cycles * mlen * 2 + work.lane_ops * accesses * 2;
  const double matrix_bytes = operand_cycles * mlen * device.numerics.weight_bytes + work.matrix_bytes_written;
  energy.sram =
      (vector_bytes * port_energy(device.sram.vector_ports) + matrix_bytes * port_energy(device.sram.matrix_ports)) *
      e.sram_pj_per_byte * scale.sram * kPico;
  energy.instruction = work.instructions * (4 * e.sram_pj_per_byte * scale.sram + kDecodePj * scale.logic) * kPico;
  const dram::DramStandard& standard = device.memory_config.standard;
  const double row_bytes = static_cast<double>(standard.columns) * standard.burst_bytes;
  const double bytes = work.read_bytes + work.write_bytes;
  energy.dram_core = (work.read_bytes * e.dram_read_pj_per_byte + work.write_bytes * e.dram_write_pj_per_byte +
                      bytes / row_bytes * e.dram_activate_pj) *
                     kPico;
  energy.dram_io = bytes * e.dram_io_pj_per_byte * kPico;
  energy.dram_background =
      e.dram_background_mw * 1e-3 * device.memory_config.channels * standard.pseudochannels * seconds;
  energy.phy = e.phy_idle_w * static_cast<double>(device.memory.stacks) * seconds;
  const AreaModel silicon = area(device);
  const double mm2 = silicon.total() - silicon.phy;
  energy.fixed = (mm2 * (e.leakage_w_per_mm2 * scale.leakage + e.clock_w_per_mm2 * scale.clock) + e.static_w) * seconds;
  return energy;
}

double dram_energy(const Device& device, const dram::PseudochannelStats& stats) {
  const EnergyKeys& e = device.energy;
  const dram::DramStandard& standard = device.memory_config.standard;
  const double read = static_cast<double>(stats.reads) * standard.burst_bytes;
  const double written = static_cast<double>(stats.writes) * standard.burst_bytes;
  const double seconds = standard.ticks_to_ns(static_cast<double>(stats.time.total())) * 1e-9;
  return (read * e.dram_read_pj_per_byte + written * e.dram_write_pj_per_byte +
          (read + written) * e.dram_io_pj_per_byte + static_cast<double>(stats.activates) * e.dram_activate_pj) *
             kPico +
         e.dram_background_mw * 1e-3 * seconds;
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

AreaModel area(const Device& device) {
  AreaModel model;
  const ArrayKeys& a = device.array;
  const IssueKeys& issue = device.issue;
  const SramKeys& sram = device.sram;
  const double effort = device.clock.effort;
  model.matrix = device.macs_per_cycle() * kPeUm2 * 1e-6 * effort;
  const auto lanes = static_cast<double>(a.vlen * a.vector_units);
  model.vector = (vector_area_fit().at(static_cast<double>(a.vlen)) * static_cast<double>(a.vector_units) +
                  lanes * kSqrtUm2 * 1e-6 + a.noise_lanes * static_cast<double>(a.vector_units) * kDrawUm2 * 1e-6) *
                 effort;
  model.scalar = kScalarUm2 * 1e-6 * effort;
  const auto results = static_cast<double>(a.blen * a.blen * (issue.accumulators - 1));
  model.issue = (static_cast<double>(issue.width) * kDispatchUm2 +
                 static_cast<double>(issue.queue) * kQueues * kQueueBits * kFlopUm2 +
                 lanes * issue_um2_per_lane(issue) + results * kSumBits * (kFlopUm2 + kMuxUm2)) *
                1e-6 * effort;
  model.vector_sram = sram_mm2(static_cast<double>(device.vector_sram_bytes()), sram.vector_ports);
  model.matrix_sram = sram_mm2(static_cast<double>(sram.matrix_tiles * a.mlen * a.mlen) * device.numerics.weight_bytes,
                               sram.matrix_ports);
  model.scalar_sram = sram_mm2(static_cast<double>(2 * sram.fp_words + 4 * sram.int_words), 2);
  model.instruction_sram = sram_mm2(static_cast<double>(4 * sram.instruction_words), 1);
  model.phy = device.memory.phy_mm2 * static_cast<double>(device.memory.stacks);
  return model;
}

nlohmann::ordered_json area_json(const AreaModel& a) {
  return {{"matrix", a.matrix},
          {"vector", a.vector},
          {"scalar", a.scalar},
          {"issue", a.issue},
          {"vector_sram", a.vector_sram},
          {"matrix_sram", a.matrix_sram},
          {"scalar_sram", a.scalar_sram},
          {"instruction_sram", a.instruction_sram},
          {"phy", a.phy},
          {"total", a.total()}};
}

nlohmann::ordered_json energy_json(const StepEnergy& e) {
  return {{"matrix_j", e.matrix},
          {"vector_j", e.vector},
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
