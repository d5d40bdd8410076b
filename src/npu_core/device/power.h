#pragma once

#include "npu_core/device/clock_keys.h"

namespace dllm::npu {

/// Clock against supply: the alpha-power law (Sakurai and Newton, IEEE JSSC 25(2), 1990), f ~ (V - Vt)^alpha / V, here
/// relative to the nominal point: 1 at clock.nominal_v. Its constants in the shipped profiles are assumed
/// (docs/design/npu-energy.md).
double relative_speed(const ClockKeys& clock, double volts);

/// How a design reaches a clock. Below the nominal one, at a lower supply. Above it, half of the ratio (in logarithms)
/// comes from the supply and half from larger gates: at a constant product of area and delay they increase area and
/// switched capacitance in proportion.
struct OperatingPoint {
  double voltage = 0, effort = 1;
};
/// A clock above highest_ghz() gets the voltage that it would need, beyond max_v.
OperatingPoint operating_point(const ClockKeys& clock);
double highest_ghz(const ClockKeys& clock);

/// Factors on the profile's energies: of a switched capacitance in logic and in SRAM, of leakage, of the clock tree.
struct PowerScale {
  double logic = 1, sram = 1, leakage = 1, clock = 1;
};
PowerScale power_scale(const ClockKeys& clock);

}  // namespace dllm::npu
