#include "npu_core/device/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "npu_core/device/power.h"
#include "npu_core/device/profile.h"
#include "numerics/mx.h"

namespace dllm::npu {

void Device::derive_array_and_clock() {
  array.tile_cycles = static_cast<double>(array.blen) / array.macs_per_pe;
  const OperatingPoint point = operating_point(clock);
  clock.voltage = point.voltage;
  clock.effort = point.effort;
}

void Device::derive_bytes() {
  const auto bytes = [](const std::string& format) {
    const auto bits = format_bits(format);
    return bits ? *bits / 8 : 0;  // validate() reports the unknown one
  };
  numerics.weight_bytes = bytes(numerics.weight);
  numerics.activation_bytes = bytes(numerics.activation);
  numerics.kv_bytes = bytes(numerics.kv);
  numerics.logit_bytes = bytes(numerics.logits);
  const auto weights = mx_format_from_name(numerics.weight);
  numerics.weights_packed = weights && weights->packed();
  numerics.costs = format_costs(numerics.weight, numerics.activation, numerics.kv);
}

dram::DramCosts Device::memory_costs() const {
  const auto given = [](double key, double standard) { return key > 0 ? key : standard; };
  const dram::DramCosts& s = memory_config.standard.costs;
  return {.read_pj_per_byte = given(energy.dram_read_pj_per_byte, s.read_pj_per_byte),
          .write_pj_per_byte = given(energy.dram_write_pj_per_byte, s.write_pj_per_byte),
          .activate_pj = given(energy.dram_activate_pj, s.activate_pj),
          .io_pj_per_byte = given(energy.dram_io_pj_per_byte, s.io_pj_per_byte),
          .background_mw = given(energy.dram_background_mw, s.background_mw),
          .phy_idle_w = given(energy.phy_idle_w, s.phy_idle_w),
          .phy_mm2 = given(memory.phy_mm2, s.phy_mm2)};
}

double Device::peak_tops() const { return 2 * macs_per_cycle() * clock.ghz * 1e-3; }

double Device::memory_gbps() const {
  const double peak = memory_config.peak_gbps();
  return memory.dma_gbps > 0 ? std::min(memory.dma_gbps, peak) : peak;
}

std::int64_t Device::period_fs() const { return std::llround(1e6 / clock.ghz); }

std::int64_t ArrayKeys::draw_cycles(bool f64) const {
  return static_cast<std::int64_t>(std::ceil((f64 ? 4 : 1) * static_cast<double>(vlen) / noise_lanes));
}

Expected<Override> parse_override(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Error{ErrorCode::kUsage, fmt::format("'{}' is not a key=value", text), "--set", "example: array.vlen=1024"};
  return Override{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

Expected<double> format_bits(const std::string& format) {
  if (const auto known = mx_format_from_name(format)) return known->average_bits();
  return Error{ErrorCode::kUsage, fmt::format("unknown number format '{}'", format), "",
               "examples: mxint4:32:plena, mxfp8_e4m3:8:plena, bf16, fp16, q4_0, q8_0"};
}

}  // namespace dllm::npu
