#include "npu/energy/energy.h"

#include <algorithm>
#include <cmath>

namespace dllm::npu {
namespace {

constexpr double kPico = 1e-12;
constexpr double kPeUm2 = 63.88;          // INT8 x INT4 PE with accumulator; gate-level synthesis gives 55 to 65
constexpr double kScalarUm2 = 661;        // d-PLENA, Section V
constexpr double kSramMm2PerMib = 0.302;  // ASAP7 8 KiB macro of 2,360 um2
constexpr double kMib = 1024.0 * 1024.0;

}  // namespace

StepEnergy step_energy(const Device& device, const Work& work, double seconds) {
  const Device::Energy& e = device.energy;
  const auto mlen = static_cast<double>(device.array.mlen);
  StepEnergy energy;
  energy.matrix = work.macs * e.mac_pj * kPico;
  energy.vector = work.lane_ops * e.vector_lane_pj * kPico;
  // At full rate the array takes MLEN weights and MLEN BF16 activations per BLEN / tile_cycles cycles (B.3); a vector
  // instruction reads two operands and writes one.
  const double weight_bytes = format_bits(device.numerics.weight) ? *format_bits(device.numerics.weight) / 8 : 1;
  const double operand_cycles = work.matrix_cycles * static_cast<double>(device.array.blen) / device.array.tile_cycles;
  energy.sram = (operand_cycles * mlen * (weight_bytes + 2) + work.lane_ops * 3 * 2) * e.sram_pj_per_byte * kPico;
  const dram::DramStandard& standard = device.memory_config.standard;
  const double row_bytes = static_cast<double>(standard.columns) * standard.burst_bytes;
  const double bytes = work.read_bytes + work.write_bytes;
  energy.dram_core = (work.read_bytes * e.dram_read_pj_per_byte + work.write_bytes * e.dram_write_pj_per_byte +
                      bytes / row_bytes * e.dram_activate_pj) *
                     kPico;
  energy.dram_io = bytes * e.dram_io_pj_per_byte * kPico;
  energy.dram_background =
      e.dram_background_mw * 1e-3 * device.memory_config.channels * standard.pseudochannels * seconds;
  energy.fixed = e.static_w * seconds;
  return energy;
}

double dram_energy(const Device& device, const dram::PseudochannelStats& stats) {
  const Device::Energy& e = device.energy;
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

LinearFit vector_area_fit() { return fit_points(&SynthesisPoint::area_mm2); }
LinearFit vector_power_fit() { return fit_points(&SynthesisPoint::power_mw); }

AreaModel area(const Device& device) {
  AreaModel model;
  const Device::Array& a = device.array;
  // tile_cycles below BLEN means more PEs than BLEN x MLEN.
  model.matrix = static_cast<double>(a.blen * a.mlen) * static_cast<double>(a.blen) / a.tile_cycles * kPeUm2 * 1e-6;
  model.vector = vector_area_fit().at(static_cast<double>(a.vlen)) * static_cast<double>(a.vector_units);
  model.scalar = kScalarUm2 * 1e-6;
  const double weight_bytes = format_bits(device.numerics.weight) ? *format_bits(device.numerics.weight) / 8 : 1;
  model.vector_sram = static_cast<double>(device.vector_sram_bytes()) / kMib * kSramMm2PerMib;
  model.matrix_sram =
      static_cast<double>(device.sram.matrix_tiles * a.mlen * a.mlen) * weight_bytes / kMib * kSramMm2PerMib;
  return model;
}

}  // namespace dllm::npu
