#include "npu_core/device/power.h"

#include <cmath>

namespace dllm::npu {

double relative_speed(const ClockKeys& c, double volts) {
  const auto drive = [&c](double v) { return std::pow(v - c.threshold_v, c.alpha) / v; };
  return volts <= c.threshold_v ? 0 : drive(volts) / drive(c.nominal_v);
}

OperatingPoint operating_point(const ClockKeys& c) {
  const double ratio = c.ghz / c.nominal_ghz;
  const double effort = ratio > 1 ? std::sqrt(ratio) : 1;
  const double speed = ratio / effort;
  if (ratio == 1) return {c.nominal_v, 1};
  // For alpha >= 1 speed rises with the supply, so bisection finds the required supply.
  double low = c.min_v, high = c.max_v;
  if (relative_speed(c, low) >= speed) return {low, effort};
  while (relative_speed(c, high) < speed && high < 100) high *= 2;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (relative_speed(c, middle) < speed ? low : high) = middle;
  }
  return {high, effort};
}

double highest_ghz(const ClockKeys& c) {
  const double speed = relative_speed(c, c.max_v);
  return c.nominal_ghz * (speed > 1 ? speed * speed : speed);
}

PowerScale power_scale(const ClockKeys& c) {
  const double v = c.voltage / c.nominal_v;
  // Leakage current rises with the supply (drain-induced barrier lowering), its power with about the third power of it.
  return {.logic = c.effort * v * v,
          .sram = v * v,
          .leakage = c.effort * v * v * v,
          .clock = c.effort * v * v * c.ghz / c.nominal_ghz};
}

}  // namespace dllm::npu
