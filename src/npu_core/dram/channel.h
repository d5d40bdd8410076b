#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "npu_core/dram/command.h"
#include "npu_core/dram/config.h"
#include "npu_core/dram/ring.h"
#include "npu_core/dram/statistics.h"

namespace dllm::npu::dram {

/// Consecutive bursts of one row, made from a transfer by address mapping.
struct Segment {
  Tick arrival = 0;
  std::uint32_t share = 0;  ///< index of the TransferShare
  std::int32_t row = 0;
  std::int32_t column = 0;
  std::uint16_t bursts = 0;
  std::uint8_t pseudochannel = 0;
  std::uint8_t bank = 0;
  bool write = false;
};

/// A transfer's bursts that one channel has still to serve, and the end of the last one's data. The channels of a
/// memory system keep theirs in one pool.
struct TransferShare {
  Tick finish = 0;
  std::uint32_t remaining = 0;
  std::uint32_t next = 0;  ///< another channel's share of the same transfer, or of the list of free ones; 0: none
  std::int32_t channel = 0;
};

/// One channel: its controller (queues, FR-FCFS, row policy, refresh) and the state of its pseudo-channels' banks.
/// Pseudo-channels have their own data buses, banks and refreshes; they share the command buses and the controller's
/// queues.
/// controller's queues.
///
/// Event-skipping: each step() finds the earliest legal command and jumps to it. A command never depends on later
/// arrivals, so a channel may run ahead to `horizon` as soon as all arrivals up to it are known. Not thread-safe;
/// channels are independent.
class Channel {
 public:
  /// `shares` and `trace` (which may be null) must outlive the channel.
  Channel(const MemoryConfig& config, int index, std::vector<TransferShare>* shares, std::vector<CommandRecord>* trace);

  /// Arrivals before now() are served as if they arrived now; the caller (MemorySystem) rejects them.
  void submit(const Segment& segment);

  /// Executes the next command if it is at or before `horizon`; false if there is none.
  bool step(Tick horizon);
  void run_until(Tick horizon) {
    while (step(horizon)) {
    }
    now_ = std::max(now_, horizon);
  }
  /// Runs until the share is served; false if `horizon` comes first.
  bool run_share(std::uint32_t share, Tick horizon = kForever) {
    while ((*shares_)[share].remaining > 0)
      if (!step(horizon)) return false;
    return true;
  }

  Tick now() const { return now_; }

  /// Counters up to now(); the time since the last column command is added to the breakdown.
  PseudochannelStats stats(int pseudochannel) const;

  static constexpr Tick kForever = std::numeric_limits<Tick>::max() / 4;

 private:
  using Index = std::int16_t;
  static constexpr Index kNone = -1;
  static constexpr int kMaxBanks = 64;
  static constexpr int kMaxGroups = 32;

  struct Entry {
    std::uint64_t age = 0;
    std::uint32_t share = 0;
    std::int32_t row = 0, column = 0;
    std::uint16_t bursts = 0;
    std::uint8_t bank = 0, group = 0, sid = 0;
    bool hit = false;                                                 ///< its row is open
    enum Need : std::uint8_t { kHit, kMiss, kConflict } need = kHit;  ///< commands that it needed
    Index previous = kNone, next = kNone;                             ///< by age, within pseudo-channel and direction
  };

  struct Bank {
    std::int32_t open_row = -1;
    std::array<Tick, 2> next_column{};  ///< read, write
    Tick next_activate = 0, next_precharge = 0;
    Tick activated = 0, last_column = 0;
    std::array<std::uint16_t, 2> waiting{}, hits{};  ///< entries; those to the open row
    std::array<std::uint64_t, 2> oldest_conflict{};  ///< age of the oldest entry to another row; 0: none
    std::array<int, 2> overtaken{};                  ///< younger hits served since that entry arrived
  };

  struct Group {  ///< bank group of a stack id
    std::array<Tick, 2> next_column{};
    Tick next_activate = 0;
  };

  struct Candidate {
    Tick at = kForever;
    std::uint64_t age = 0;
    std::int16_t pseudochannel = -1;
    Index entry = kNone;
    std::int16_t bank = -1;
    Command command = Command::kActivate;
  };

  struct Pseudochannel {
    std::array<Bank, kMaxBanks> banks;
    std::array<Group, kMaxGroups> groups;
    std::array<Index, 2> head{kNone, kNone}, tail{kNone, kNone};
    std::array<std::uint64_t, 2> want_row{};  ///< banks with entries, none of which hits the open row
    std::array<std::uint64_t, 2> capped{};    ///< banks whose hits wait for an overtaken entry
    std::uint64_t open = 0;
    std::uint64_t blocked = 0;  ///< banks that wait for a refresh
    std::array<Tick, 2> next_column{};
    Tick next_other_sid = 0;  ///< reads of another stack id
    int last_sid = 0;
    Tick next_activate = 0, next_precharge = 0;
    std::array<Tick, 4> activations{};  ///< ring for tFAW
    int activation = 0;
    Tick refresh_due = 0, refresh_ready = 0;
    Tick next_refresh_bank = 0;
    int refresh_bank = 0;
    // For the attribution of time.
    Tick covered = 0;  ///< everything before it is attributed
    Tick filled = 0;   ///< when the empty queue last got an entry
    Tick refresh_begin = 0, refresh_end = 0;
    Tick mode_since = 0;
    int entries = 0;
    // Cached results, valid until something they depend on changes or their time has passed.
    Candidate column, row, other;
    bool column_stale = true, row_stale = true;
    int last_direction = -1;
    PseudochannelStats stats;
  };

  // channel.cpp
  void admit();
  void enqueue(const Segment& segment);
  void unlink(Pseudochannel& pc, Index index, int direction);
  void update_mode();
  void update_want(Pseudochannel& pc, int bank);
  Tick column_ready(const Pseudochannel& pc, const Entry& entry, std::size_t direction, Tick soonest) const;
  bool may_serve(const Pseudochannel& pc, const Entry& entry, std::size_t direction) const {
    return entry.hit && (((pc.blocked | pc.capped[direction]) >> entry.bank) & 1) == 0;
  }
  void rescan_bank(Pseudochannel& pc, int bank);

  // channel_schedule.cpp
  void find_column(std::int16_t index);
  void find_row(std::int16_t index);
  const Candidate* pseudochannel_candidate(std::int16_t index);
  Candidate idle_precharge(std::int16_t index);
  Candidate refresh_candidate(std::int16_t index);
  Candidate refresh_all_candidate(std::int16_t index);
  Candidate refresh_bank_candidate(std::int16_t index);
  void block_for_refresh(Pseudochannel& pc);
  void skip_idle(Tick until);
  Tick activate_ready(const Pseudochannel& pc, int bank) const;
  Tick align(Tick at) const { return (at + clock_ - 1) & ~(clock_ - 1); }

  // channel_issue.cpp
  void issue(const Candidate& candidate);
  void issue_column(const Candidate& candidate);
  void delay_after_column(Pseudochannel& pc, int bank_index, Tick at, int direction);
  Entry* oldest_conflict(Pseudochannel& pc, int bank);
  void issue_activate(const Candidate& candidate);
  void close_bank(Pseudochannel& pc, int bank, Tick at);
  void issue_precharge(const Candidate& candidate);
  void issue_precharge_all(const Candidate& candidate);
  void issue_refresh_all(const Candidate& candidate);
  void issue_refresh_bank(const Candidate& candidate);
  void attribute(Pseudochannel& pc, const Bank& bank, Tick at, int direction);
  void record(const Candidate& candidate, int row, int column);
  int group_of(int bank) const { return bank >> group_shift_; }
  int sid_of(int bank) const { return bank >> sid_shift_; }

  MemoryConfig config_;
  Timing t_;
  int index_;
  Tick clock_;  ///< ticks per clock; column commands, activations and refreshes are aligned to it
  int group_shift_, sid_shift_;
  Tick row_timeout_ = 0, refresh_interval_ = 0;
  int refresh_sets_ = 1;
  std::vector<TransferShare>* shares_;
  std::vector<CommandRecord>* trace_;

  Tick now_ = 0;
  Tick row_bus_ = 0, column_bus_ = 0;  ///< free from this time
  int direction_ = 0;                  ///< 1 while draining writes
  std::array<int, 2> queued_{};        ///< bursts
  std::array<int, 2> capacity_{};
  int drain_at_ = 0, resume_at_ = 0;
  std::uint64_t ages_ = 0;
  std::vector<Entry> entries_;
  std::vector<Index> free_;
  Ring<Segment> pending_;
  Tick next_arrival_ = kForever;  ///< of the first pending one
  std::vector<Pseudochannel> pcs_;
};

}  // namespace dllm::npu::dram
