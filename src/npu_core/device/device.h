#pragma once

#include <cstdint>
#include <string>

#include "npu_core/device/array_keys.h"
#include "npu_core/device/clock_keys.h"
#include "npu_core/device/energy_keys.h"
#include "npu_core/device/host_keys.h"
#include "npu_core/device/issue_keys.h"
#include "npu_core/device/latency_keys.h"
#include "npu_core/device/memory_keys.h"
#include "npu_core/device/numerics_keys.h"
#include "npu_core/device/prefetch_keys.h"
#include "npu_core/device/sram_keys.h"
#include "npu_core/device/thermal_keys.h"
#include "npu_core/device/window_keys.h"
#include "npu_core/dram/config.h"

namespace dllm::npu {

/// A device: everything about an NPU that the compiler, the simulators and the models need. profile.h reads it from
/// TOML, keys.h lists its keys. Code that needs one section includes that section's header only; headers that only pass
/// a device on declare `struct Device`.
struct Device {
  std::string name;
  std::string summary;

  ArrayKeys array;
  ClockKeys clock;
  IssueKeys issue;
  SramKeys sram;
  MemoryKeys memory;
  PrefetchKeys prefetch;
  LatencyKeys latency;
  NumericsKeys numerics;
  HostKeys host;
  WindowKeys window;
  ThermalKeys thermal;
  EnergyKeys energy;

  dram::MemoryConfig memory_config;  ///< resolved from `memory`

  /// Sets the members marked as derived from the keys.
  void derive() {
    derive_array_and_clock();
    derive_bytes();
  }
  void derive_array_and_clock();
  void derive_bytes();  ///< of `numerics`, from the names of formats
  /// Of the array, multiply-accumulates per cycle.
  double macs_per_cycle() const { return static_cast<double>(array.blen * array.mlen) * array.macs_per_pe; }
  double peak_tops() const;  ///< 1e12 operations (two per multiply-accumulate) per second
  /// Energy and area of the memory: the device's keys, or the standard's values where a key is 0.
  dram::DramCosts memory_costs() const;
  double memory_gbps() const;      ///< peak of the memory, or of the DMA engines if lower
  std::int64_t period_fs() const;  ///< of the clock
  /// Bytes of the device's weights that vector code unpacks in a nanosecond; 0: nothing is to be unpacked, or hardware
  /// does it. Models ask this, not host.dequantize_gbps, which a device has whatever its weights are.
  double unpack_gbps() const { return numerics.weights_packed ? host.dequantize_gbps : 0; }
  std::int64_t vector_sram_bytes() const { return sram.vector_rows * array.vlen * 2; }
};

}  // namespace dllm::npu
