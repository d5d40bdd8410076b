#include "npu_core/dram/channel.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/integers.h"
#include "base/to_size.h"

namespace dllm::npu::dram {
Channel::Channel(const MemoryConfig& config, int index, std::vector<TransferShare>* shares,
                 std::vector<CommandRecord>* trace)
    : config_(config),
      t_(config.standard.timing),
      index_(index),
      clock_(config.standard.ticks_per_clock),
      group_shift_(log2_exact(config.standard.banks_per_group)),
      sid_shift_(group_shift_ + log2_exact(config.standard.bank_groups)),
      shares_(shares),
      trace_(trace),
      capacity_{config.read_queue, config.write_queue},
      drain_at_(static_cast<int>(config.write_high * config.write_queue)),
      resume_at_(static_cast<int>(config.write_low * config.write_queue)),
      entries_(to_size(config.read_queue + config.write_queue + 2)),
      pcs_(to_size(config.standard.pseudochannels)) {
  const DramStandard& standard = config.standard;
  for (std::size_t i = entries_.size(); i > 0; --i) free_.push_back(static_cast<Index>(i - 1));
  row_timeout_ = static_cast<Tick>(config.row_timeout_ns * 1e6 / static_cast<double>(standard.tick_fs()));
  refresh_sets_ = standard.banks() / (standard.refresh_bank_pairs ? 2 : 1);
  refresh_interval_ = config.refresh == RefreshMode::kPerBank ? t_.refi / refresh_sets_ : t_.refi;
  if (config.refresh == RefreshMode::kNone || refresh_interval_ == 0) refresh_interval_ = kForever;
  for (std::size_t p = 0; p < pcs_.size(); ++p) {
    pcs_[p].refresh_due = refresh_interval_;
    for (Tick& activation : pcs_[p].activations) activation = -t_.faw;
    if (config.refresh_stagger && refresh_interval_ != kForever) {
      const auto all = static_cast<Tick>(pcs_.size()) * config.channels;
      pcs_[p].refresh_due =
          refresh_interval_ * (index * static_cast<Tick>(pcs_.size()) + static_cast<Tick>(p) + 1) / all;
    }
    pcs_[p].refresh_due = align(pcs_[p].refresh_due);
  }
}

void Channel::submit(const Segment& segment) {
  (*shares_)[segment.share].remaining += segment.bursts;
  if (pending_.empty() || pending_.back().arrival <= segment.arrival) {
    pending_.push_back(segment);
    next_arrival_ = pending_.front().arrival;
    return;
  }
  // Out of order: move it ahead of everything that arrives later, after those with the same time.
  pending_.push_back(segment);
  for (std::size_t i = pending_.size() - 1; i > 0 && pending_[i - 1].arrival > segment.arrival; --i)
    std::swap(pending_[i - 1], pending_[i]);
  next_arrival_ = pending_.front().arrival;
}

void Channel::admit() {
  while (next_arrival_ <= now_) {
    Segment& segment = pending_.front();
    const auto direction = to_size(segment.write);
    const int room = capacity_[direction] - queued_[direction];
    if (room <= 0) return;
    if (segment.bursts > room) {  // the rest of a long run waits outside
      Segment part = segment;
      part.bursts = static_cast<std::uint16_t>(room);
      enqueue(part);
      segment.bursts = static_cast<std::uint16_t>(segment.bursts - room);
      segment.column += room;
      return;
    }
    enqueue(segment);
    pending_.pop_front();
    next_arrival_ = pending_.empty() ? kForever : pending_.front().arrival;
  }
}

void Channel::enqueue(const Segment& segment) {
  Pseudochannel& pc = pcs_[segment.pseudochannel];
  const int direction = segment.write ? 1 : 0;
  const auto d = to_size(direction);
  Bank& bank = pc.banks[segment.bank];
  if (pc.entries++ == 0) pc.filled = now_;
  queued_[d] += segment.bursts;
  const Index last = pc.tail[d];
  if (last != kNone) {
    Entry& entry = entries_[to_size(last)];
    if (entry.bank == segment.bank && entry.row == segment.row && entry.share == segment.share &&
        entry.column + entry.bursts == segment.column) {
      entry.bursts = static_cast<std::uint16_t>(entry.bursts + segment.bursts);
      --pc.entries;
      return;
    }
  }
  const Index index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[to_size(index)];
  entry.age = ++ages_;
  entry.share = segment.share;
  entry.row = segment.row;
  entry.column = segment.column;
  entry.bursts = segment.bursts;
  entry.bank = segment.bank;
  entry.group = static_cast<std::uint8_t>(group_of(segment.bank));
  entry.sid = static_cast<std::uint8_t>(sid_of(segment.bank));
  entry.hit = bank.open_row == segment.row;
  entry.need = Entry::kHit;
  entry.previous = last;
  entry.next = kNone;
  (last == kNone ? pc.head[d] : entries_[to_size(last)].next) = index;
  pc.tail[d] = index;
  ++bank.waiting[d];
  if (entry.hit) {
    ++bank.hits[d];
    // The youngest entry can only win if no older one can be served as early.
    if (direction == direction_ && !pc.column_stale && may_serve(pc, entry, d)) {
      const Tick soonest = align(std::max({now_, column_bus_, pc.next_column[d]}));
      const Tick at = column_ready(pc, entry, d, soonest);
      if (at < pc.column.at) pc.column.at = at, pc.column.age = entry.age, pc.column.entry = index;
    }
  } else if (bank.oldest_conflict[d] == 0) {
    bank.oldest_conflict[d] = entry.age;
    bank.overtaken[d] = 0;
  }
  if (entry.hit ? bank.hits[d] == 1 : bank.waiting[d] == 1) update_want(pc, segment.bank);
}

void Channel::unlink(Pseudochannel& pc, Index index, int direction) {
  const auto d = to_size(direction);
  const Entry& entry = entries_[to_size(index)];
  (entry.previous == kNone ? pc.head[d] : entries_[to_size(entry.previous)].next) = entry.next;
  (entry.next == kNone ? pc.tail[d] : entries_[to_size(entry.next)].previous) = entry.previous;
  free_.push_back(index);
  --pc.entries;
}

/// Writes are buffered until they fill most of their queue or no read is waiting, and then drained until few are left:
/// each change of direction costs the bus a turnaround.
void Channel::update_mode() {
  const int before = direction_;
  if (direction_ == 0) {
    if (queued_[1] > drain_at_ || (queued_[0] == 0 && queued_[1] > 0)) direction_ = 1;
  } else if (queued_[1] == 0 || (queued_[1] < resume_at_ && queued_[0] > 0)) {
    direction_ = 0;
  }
  if (direction_ != before)
    for (Pseudochannel& pc : pcs_) pc.mode_since = now_, pc.column_stale = pc.row_stale = true;
}

void Channel::update_want(Pseudochannel& pc, int bank_index) {
  const Bank& bank = pc.banks[to_size(bank_index)];
  const std::uint64_t bit = std::uint64_t{1} << bank_index;
  for (std::size_t d = 0; d < 2; ++d) {
    const std::uint64_t before = pc.want_row[d];
    const bool wants = bank.waiting[d] > 0 && (bank.hits[d] == 0 || (pc.capped[d] & bit) != 0);
    pc.want_row[d] = wants ? before | bit : before & ~bit;
    if (pc.want_row[d] != before) pc.row_stale = true;
  }
}

/// Re-classifies the entries of a bank after its open row has changed.
void Channel::rescan_bank(Pseudochannel& pc, int bank_index) {
  Bank& bank = pc.banks[to_size(bank_index)];
  for (std::size_t d = 0; d < 2; ++d) {
    pc.capped[d] &= ~(std::uint64_t{1} << bank_index);
    bank.overtaken[d] = 0;
    if (bank.open_row < 0 && bank.hits[d] == 0) continue;  // nothing was a hit, and nothing will be
    bank.hits[d] = 0;
    bank.oldest_conflict[d] = 0;
    Index i = pc.head[d];
    for (int left = bank.waiting[d]; left > 0;) {
      Entry& entry = entries_[to_size(i)];
      i = entry.next;
      if (entry.bank != bank_index) continue;
      --left;
      entry.hit = entry.row == bank.open_row;
      if (entry.hit)
        ++bank.hits[d];
      else if (bank.oldest_conflict[d] == 0)
        bank.oldest_conflict[d] = entry.age;
    }
  }
  pc.column_stale = pc.row_stale = true;
  update_want(pc, bank_index);
}

PseudochannelStats Channel::stats(int pseudochannel) const {
  const Pseudochannel& pc = pcs_[to_size(pseudochannel)];
  PseudochannelStats stats = pc.stats;
  stats.time.idle += std::max<Tick>(0, now_ - pc.covered);
  return stats;
}

}  // namespace dllm::npu::dram
