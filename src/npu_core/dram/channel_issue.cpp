// The effects of a command: timing state, queues, statistics.
#include <algorithm>
#include <bit>

#include "base/to_size.h"
#include "npu_core/dram/channel.h"

namespace dllm::npu::dram {
namespace {

void later(Tick& target, Tick at) { target = std::max(target, at); }

}  // namespace

void Channel::record(const Candidate& candidate, int row, int column) {
  if (trace_ == nullptr) return;
  trace_->push_back({candidate.at, candidate.command, static_cast<std::int16_t>(index_),
                     static_cast<std::int16_t>(candidate.pseudochannel), static_cast<std::int16_t>(candidate.bank), row,
                     column});
}

void Channel::issue(const Candidate& candidate) {
  switch (candidate.command) {
    case Command::kActivate:
      return issue_activate(candidate);
    case Command::kPrecharge:
      return issue_precharge(candidate);
    case Command::kPrechargeAll:
      return issue_precharge_all(candidate);
    case Command::kRefreshAll:
      return issue_refresh_all(candidate);
    case Command::kRefreshBank:
      return issue_refresh_bank(candidate);
    default:
      return issue_column(candidate);
  }
}

/// Splits the time since the last column command into its causes. Each cause takes at most what it can explain, in this
/// order: empty queue, refresh, write draining, turnaround, row change, column spacing.
void Channel::attribute(Pseudochannel& pc, const Bank& bank, Tick at, int direction) {
  TimeBreakdown& time = pc.stats.time;
  Tick from = pc.covered;
  const auto take = [&from, at](Tick& cause, Tick until) {
    until = std::clamp(until, from, at);
    cause += until - from;
    from = until;
  };
  if (from < at) {
    const Tick gap_start = from;
    take(time.idle, pc.filled);
    // Rows that a refresh closed have to be reopened: their activation is attributed to it.
    if (pc.refresh_end > gap_start && pc.refresh_begin < at) {
      take(time.row, pc.refresh_begin);
      take(time.refresh, std::max(pc.refresh_end, bank.activated > pc.refresh_begin ? at : pc.refresh_end));
    }
    take(time.mode, pc.mode_since);
    if (pc.last_direction >= 0 && pc.last_direction != direction)
      take(time.turnaround, from + (direction == 1 ? t_.rtw : t_.write_to_read_l()) - t_.bl);
    if (bank.activated >= gap_start - t_.bl) take(time.row, at);
    take(time.column, at);
  }
  time.data += t_.bl;
  pc.covered = at + t_.bl;
  pc.last_direction = direction;
}

/// When the next commands may follow a burst at `at`.
void Channel::delay_after_column(Pseudochannel& pc, int bank_index, Tick at, int direction) {
  Bank& bank = pc.banks[to_size(bank_index)];
  Group& group = pc.groups[to_size(group_of(bank_index))];
  if (direction == 0) {
    later(pc.next_column[0], at + t_.ccd_s);
    later(pc.next_other_sid, at + t_.ccd_r);
    pc.last_sid = sid_of(bank_index);
    later(pc.next_column[1], at + t_.rtw);
    later(group.next_column[0], at + t_.ccd_l);
    later(bank.next_precharge, at + t_.rtp);
    ++pc.stats.reads;
  } else {
    later(pc.next_column[1], at + t_.ccd_s);
    later(pc.next_column[0], at + t_.write_to_read_s());
    later(group.next_column[1], at + t_.ccd_l);
    later(group.next_column[0], at + t_.write_to_read_l());
    later(bank.next_precharge, at + t_.write_to_precharge());
    ++pc.stats.writes;
  }
  bank.last_column = at;
}

void Channel::issue_column(const Candidate& candidate) {
  Pseudochannel& pc = pcs_[to_size(candidate.pseudochannel)];
  Entry& entry = entries_[to_size(candidate.entry)];
  Bank& bank = pc.banks[entry.bank];
  const Tick at = candidate.at;
  const int direction = candidate.command == Command::kRead ? 0 : 1;
  const auto d = to_size(direction);
  attribute(pc, bank, at, direction);
  pc.column_stale = true;
  if (((pc.want_row[0] | pc.want_row[1]) >> entry.bank) & 1) pc.row_stale = true;  // its precharge moved

  column_bus_ = at + config_.standard.column_ticks;
  if (config_.standard.shared_bus) row_bus_ = column_bus_;
  delay_after_column(pc, entry.bank, at, direction);
  (entry.need == Entry::kHit    ? pc.stats.row_hits
   : entry.need == Entry::kMiss ? pc.stats.row_misses
                                : pc.stats.row_conflicts)++;
  entry.need = Entry::kHit;
  if (bank.oldest_conflict[d] != 0 && entry.age > bank.oldest_conflict[d] && ++bank.overtaken[d] >= config_.hit_cap) {
    pc.capped[d] |= std::uint64_t{1} << entry.bank;
    pc.row_stale = true;
    update_want(pc, entry.bank);
  }

  const int column = entry.column++;
  --queued_[d];
  TransferShare& share = (*shares_)[entry.share];
  --share.remaining;
  later(share.finish, at + (direction == 0 ? t_.cl : t_.cwl) + t_.bl);
  const std::int16_t bank_index = entry.bank;
  const int row = entry.row;
  if (--entry.bursts == 0) {
    unlink(pc, candidate.entry, direction);
    --bank.waiting[d];
    if (--bank.hits[d] == 0) update_want(pc, bank_index);
  }
  const bool close = config_.row_policy == RowPolicy::kClosed && bank.hits[0] + bank.hits[1] == 0;
  if (trace_ != nullptr) {
    Candidate issued = candidate;
    issued.bank = bank_index;
    if (close) issued.command = direction == 0 ? Command::kReadAuto : Command::kWriteAuto;
    record(issued, row, column);
  }
  if (close) close_bank(pc, bank_index, bank.next_precharge);  // the device itself waits for tRAS, tRTP and tWR
}

/// The entry that causes a bank's row to be changed; null: none.
Channel::Entry* Channel::oldest_conflict(Pseudochannel& pc, int bank) {
  for (Index i = pc.head[to_size(direction_)]; i != kNone;) {
    Entry& entry = entries_[to_size(i)];
    if (entry.bank == bank && !entry.hit) return &entry;
    i = entry.next;
  }
  return nullptr;
}

void Channel::issue_activate(const Candidate& candidate) {
  Pseudochannel& pc = pcs_[to_size(candidate.pseudochannel)];
  Entry& entry = *oldest_conflict(pc, candidate.bank);
  Bank& bank = pc.banks[entry.bank];
  const Tick at = candidate.at;
  if (entry.need == Entry::kHit) entry.need = Entry::kMiss;
  bank.open_row = entry.row;
  bank.activated = at;
  pc.open |= std::uint64_t{1} << entry.bank;
  later(bank.next_column[0], at + t_.rcd_rd);
  later(bank.next_column[1], at + t_.rcd_wr);
  later(bank.next_precharge, at + t_.ras);
  later(bank.next_activate, at + t_.rc);
  later(pc.next_activate, at + t_.rrd_s);
  later(pc.groups[to_size(group_of(entry.bank))].next_activate, at + t_.rrd_l);
  later(pc.refresh_ready, at + t_.rc);
  pc.activations[to_size(pc.activation)] = at;
  pc.activation = (pc.activation + 1) & 3;
  row_bus_ = at + config_.standard.activate_ticks;
  if (config_.standard.shared_bus) column_bus_ = row_bus_;
  ++pc.stats.activates;
  record(candidate, entry.row, -1);
  rescan_bank(pc, entry.bank);
}

void Channel::close_bank(Pseudochannel& pc, int bank_index, Tick at) {
  Bank& bank = pc.banks[to_size(bank_index)];
  bank.open_row = -1;
  pc.open &= ~(std::uint64_t{1} << bank_index);
  later(bank.next_activate, at + t_.rp);
  later(pc.refresh_ready, at + t_.rp);
  ++pc.stats.precharges;
  rescan_bank(pc, bank_index);
}

void Channel::issue_precharge(const Candidate& candidate) {
  Pseudochannel& pc = pcs_[to_size(candidate.pseudochannel)];
  // Age 0 marks a precharge for a refresh.
  if (Entry* entry = candidate.age == 0 ? nullptr : oldest_conflict(pc, candidate.bank)) entry->need = Entry::kConflict;
  row_bus_ = candidate.at + config_.standard.precharge_ticks;
  if (config_.standard.shared_bus) column_bus_ = row_bus_;
  later(pc.next_precharge, candidate.at + t_.ppd);
  pc.row_stale = true;
  record(candidate, -1, -1);
  close_bank(pc, candidate.bank, candidate.at);
}

void Channel::issue_precharge_all(const Candidate& candidate) {
  Pseudochannel& pc = pcs_[to_size(candidate.pseudochannel)];
  row_bus_ = candidate.at + config_.standard.precharge_ticks;
  if (config_.standard.shared_bus) column_bus_ = row_bus_;
  later(pc.next_precharge, candidate.at + t_.ppd);
  pc.row_stale = true;
  record(candidate, -1, -1);
  for (std::uint64_t left = pc.open; left != 0; left &= left - 1) close_bank(pc, std::countr_zero(left), candidate.at);
}

void Channel::issue_refresh_all(const Candidate& candidate) {
  Pseudochannel& pc = pcs_[to_size(candidate.pseudochannel)];
  const Tick at = candidate.at;
  record(candidate, -1, -1);
  row_bus_ = at + config_.standard.refresh_ticks;
  if (config_.standard.shared_bus) column_bus_ = row_bus_;
  later(pc.next_activate, at + t_.rfc);
  later(pc.refresh_ready, at + t_.rfc);
  later(pc.next_precharge, at + t_.rfc);
  pc.refresh_due = align(pc.refresh_due + refresh_interval_);
  pc.refresh_end = at + t_.rfc;
  pc.blocked = 0;
  pc.column_stale = pc.row_stale = true;
  ++pc.stats.refreshes_all;
}

void Channel::issue_refresh_bank(const Candidate& candidate) {
  Pseudochannel& pc = pcs_[to_size(candidate.pseudochannel)];
  const Tick at = candidate.at;
  record(candidate, -1, -1);
  row_bus_ = at + config_.standard.refresh_ticks;
  if (config_.standard.shared_bus) column_bus_ = row_bus_;
  for (std::uint64_t left = pc.blocked; left != 0; left &= left - 1)
    later(pc.banks[to_size(std::countr_zero(left))].next_activate, at + t_.rfc_pb);
  later(pc.next_activate, at + t_.rref_d);
  later(pc.next_refresh_bank, at + t_.rref_d);
  pc.refresh_bank = (pc.refresh_bank + 1) % refresh_sets_;
  pc.refresh_due = align(pc.refresh_due + refresh_interval_);
  pc.refresh_end = at + t_.rfc_pb;
  pc.blocked = 0;
  pc.column_stale = pc.row_stale = true;
  ++pc.stats.refreshes_bank;
}

}  // namespace dllm::npu::dram
