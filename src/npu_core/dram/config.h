#pragma once

#include <cstdint>
#include <string>

#include "npu_core/dram/standard.h"

namespace dllm::npu::dram {

/// When a controller closes a row without waiting requests.
enum class RowPolicy {
  kOpen,     ///< never: the next access decides
  kClosed,   ///< with the last queued access to the row (auto-precharge)
  kTimeout,  ///< after `row_timeout_ns` without an access
};

enum class RefreshMode {
  kNone,     ///< for experiments only: a real device would lose data
  kAllBank,  ///< every tREFI all banks of a pseudo-channel, for tRFC
  kPerBank,  ///< every tREFI / banks one bank, for tRFCpb; the others continue
};

/// A memory system: how many channels of which standard, and their controllers.
struct MemoryConfig {
  DramStandard standard;
  int channels = 1;
  std::string mapping;  ///< empty: the standard's default
  RowPolicy row_policy = RowPolicy::kOpen;
  double row_timeout_ns = 100;
  RefreshMode refresh = RefreshMode::kAllBank;
  /// Staggers the refreshes of the pseudo-channels over tREFI. Off: a stream that stripes over all of them stops once
  /// for all instead of once for each.
  bool refresh_stagger = false;

  int read_queue = 64;  ///< bursts per channel that the scheduler sees
  int write_queue = 64;
  double write_high = 0.8;  ///< fill of the write queue at which writes are drained
  double write_low = 0.2;   ///< and at which reads resume
  /// Younger row hits that may overtake an older request to another row of the same bank before the row is closed for
  /// it.
  int hit_cap = 32;
  /// Added to every completion: latency between client and controller.
  double frontend_ns = 0;

  std::int64_t bytes() const { return standard.bytes_per_channel() * channels; }
  double peak_gbps() const { return standard.peak_gbps() * standard.pseudochannels * channels; }
};

}  // namespace dllm::npu::dram
