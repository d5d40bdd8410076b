#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/to_size.h"
#include "dllm/error.h"
#include "npu_core/dram/address_map.h"
#include "npu_core/dram/channel.h"
#include "npu_core/dram/config.h"
#include "npu_core/dram/statistics.h"

namespace dllm::npu::dram {

enum class Access { kRead, kWrite };

/// A cycle of the client's clock, e.g. of the NPU.
using ClientCycle = std::int64_t;

/// Identifies a transfer between submit() and its wait().
using TransferId = std::uint32_t;

/// A device's whole DRAM, used by a client with its own clock.
///
///   MemorySystem memory = ...;                                  // 1 GHz client
///   const TransferId t = memory.submit(address, 8192, Access::kRead, cycle);
///   ...
///   const ClientCycle done = memory.wait(t);                    // first cycle with all bytes there
///
/// Virtual time: nothing is simulated before wait() is called. wait() simulates each channel of the transfer only as
/// far as its bytes need, so the client must first submit everything that arrives before that time. A client that
/// issues in order and stalls in wait() does so automatically. Results do not depend on when wait() is called.
class MemorySystem {
 public:
  /// `client_period_fs`: the client's clock period in femtoseconds (1,000,000 for 1 GHz). Errors: an unknown mapping, a
  /// channel count or queue size that the model does not support.
  static Expected<MemorySystem> create(const MemoryConfig& config, std::int64_t client_period_fs, bool trace = false);

  /// A transfer of `bytes` from any byte address, moved in whole bursts. The data of a read are available, and a write
  /// is accepted, at the cycle that wait() returns. Errors: beyond the memory; before now().
  Expected<TransferId> submit(std::uint64_t address, std::uint64_t bytes, Access access, ClientCycle arrival);
  /// The same without checks: bytes > 0, inside the memory, not before now().
  TransferId submit_unchecked(std::uint64_t address, std::uint64_t bytes, Access access, ClientCycle arrival);

  /// Completion cycle; frees the id.
  ClientCycle wait(TransferId transfer);
  /// Completion of the last of several. Simulates channel by channel, which is kinder to the cache: for streams of
  /// small transfers this takes a fifth less time than waiting for each in turn.
  ClientCycle wait_all(std::span<const TransferId> transfers);
  /// The same, for a client that will submit more from `arrival` on: simulates no command at or after that cycle.
  /// nullopt: not complete before; the id stays valid. Time does not advance to `arrival`.
  std::optional<ClientCycle> wait_before(TransferId transfer, ClientCycle arrival);
  /// True if the transfer is complete at `cycle`, up to which everything is simulated. The id stays valid.
  bool done(TransferId transfer, ClientCycle cycle);
  /// Simulates everything up to `cycle`.
  void advance(ClientCycle cycle);

  /// No channel has been simulated beyond this cycle, the earliest arrival that is still accepted everywhere.
  ClientCycle now() const;

  const MemoryConfig& config() const { return config_; }
  const AddressMap& map() const { return map_; }
  std::uint64_t bytes() const { return map_.bursts() * static_cast<std::uint64_t>(config_.standard.burst_bytes); }
  int pseudochannels() const { return config_.channels * config_.standard.pseudochannels; }
  PseudochannelStats stats(int channel, int pseudochannel) const {
    return channels_[to_size(channel)].stats(pseudochannel);
  }
  /// Latencies of transfers that were waited for, in ticks from arrival to completion.
  const LatencyHistogram& latencies(Access access) const { return latencies_[access == Access::kWrite ? 1 : 0]; }
  std::uint64_t bytes_requested() const { return bytes_requested_; }
  /// End of the last data so far, in ticks.
  Tick finished() const { return finished_; }
  /// Commands of all channels in the order of issue per channel; empty unless enabled.
  const std::vector<CommandRecord>& trace() const { return *trace_; }

  Tick tick_of(ClientCycle cycle) const;  ///< first tick at or after the cycle's edge
  ClientCycle cycle_of(Tick tick) const;  ///< first cycle edge at or after the tick

 private:
  struct Transfer {
    Tick arrival = 0;
    std::uint32_t shares = 0;  ///< head of the list of its channels' shares
    bool write = false;
  };
  MemorySystem(const MemoryConfig& config, AddressMap map, std::int64_t client_period_fs, bool trace);
  std::uint32_t new_share(Transfer& transfer, int channel);

  MemoryConfig config_;
  AddressMap map_;
  std::int64_t client_period_fs_, tick_fs_;
  Tick frontend_ = 0;
  int burst_shift_;
  std::unique_ptr<std::vector<CommandRecord>> trace_;
  std::unique_ptr<std::vector<TransferShare>> shares_;  ///< [0] is not a share: 0 ends lists
  std::uint32_t free_share_ = 0;
  std::array<std::uint32_t, 64> current_{};  ///< share of each channel in the transfer being submitted
  std::vector<Channel> channels_;
  std::vector<Transfer> transfers_;
  std::vector<TransferId> free_;
  std::vector<std::vector<std::uint32_t>> waited_;  ///< shares by channel, of wait_all()
  std::array<LatencyHistogram, 2> latencies_;
  std::uint64_t bytes_requested_ = 0;
  Tick finished_ = 0;
};

}  // namespace dllm::npu::dram
