#pragma once

#include "npu_core/dram/config.h"

namespace dllm::npu::dram {

/// Closed forms of a memory, in ns and GB/s (1e9) per pseudo-channel; reported with every simulated figure
/// (docs/design/npu-memory.md).
struct ClosedForm {
  double idle_read_ns = 0;      ///< row closed: tRCD + CL + BL
  double conflict_read_ns = 0;  ///< another row open: + tRP
  double peak_gbps = 0;
  double one_group_gbps = 0;  ///< a stream within one bank group: a burst per tCCD_L
  double one_bank_gbps = 0;   ///< a new row of the same bank each time: a burst per tRC
  /// New rows in all banks: the slowest of tFAW/4, tRRD_S, tRC/banks, and the row bus that the pseudo-channels of a
  /// channel share.
  double random_gbps = 0;
  /// Fraction of time in which the memory is blocked, tRFC / tREFI; with per-bank refresh each bank is, for tRFCpb /
  /// tREFI, which the others hide as far as the traffic permits.
  double refresh_loss = 0;
  /// Including the overhead of a refresh: precharge before, activation after.
  double refresh_loss_with_restart = 0;
};

ClosedForm closed_form(const MemoryConfig& config);

}  // namespace dllm::npu::dram
