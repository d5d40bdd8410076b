#pragma once

#include "npu_core/device/thermal_keys.h"

namespace dllm::npu {

struct Device;

/// The device and its host at the lowered clock: what runs with the clock takes longer in proportion, at the supply of
/// that clock (power.h). The memory keeps its speed. Precondition: a thermal limit.
Device throttled(const Device& device);

/// The temperature of one heat capacity that loses heat in proportion to its rise above the surroundings, so that
/// thermal.sustained_w holds it at thermal.rise_k, and the clock that follows from it. Deterministic; off without a
/// limit.
class HeatModel {
 public:
  explicit HeatModel(const ThermalKeys& thermal) : thermal_(thermal), rise_(thermal.start_k) { decide(); }

  /// Energy that was spent evenly over a time.
  void add(double joules, double seconds);
  double rise() const { return rise_; }  ///< kelvin
  bool throttled() const { return throttled_; }

 private:
  void decide();

  ThermalKeys thermal_;
  double rise_ = 0;
  bool throttled_ = false;
};

}  // namespace dllm::npu
