#pragma once

#include <memory>

#include "cpu/peak.h"
#include "dllm/error.h"
#include "vulkan/device.h"

namespace dllm::vulkan {

/// A device's limits, in operations (a multiply and an add are two) and bytes per second, each by a shader that does
/// nothing else. 0: it has no such unit.
struct DevicePeaks {
  double read = 0;                       ///< of its memory
  double floats = 0;                     ///< fused multiply-adds of F32
  double dots = 0;                       ///< integer dot products
  double matrices = 0;                   ///< cooperative matrices of int8
  double halves = 0;                     ///< those of F16 that add in F32
  MatrixShape matrix_shape, half_shape;  ///< of the fastest operation

  /// Where int8 is the faster of `dots` and `matrices`, and f16 is `halves`.
  cpu::Peaks summary() const;
};

/// Measures by the device's own clock: the least of some runs, about half a second on a card, whose clocks rise with
/// work. Takes up to 2 GiB of the device's memory meanwhile. Errors: kUnsupported (it has no timestamps), kResource.
Expected<DevicePeaks> measure_peaks(const std::shared_ptr<Device>& device);

}  // namespace dllm::vulkan
