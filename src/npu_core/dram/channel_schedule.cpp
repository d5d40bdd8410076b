// Chooses the next command: candidates per pseudo-channel for the column bus, the row bus and refresh.
#include <algorithm>
#include <bit>

#include "base/to_size.h"
#include "npu_core/dram/channel.h"

namespace dllm::npu::dram {

/// Refreshes of an idle channel repeat with the rotation of the banks. In a long gap, those in the middle are counted
/// without being simulated; two rotations are simulated before the next arrival, which set all state that it depends
/// on.
void Channel::skip_idle(Tick until) {
  const Tick rotation = align(refresh_interval_) * (config_.refresh == RefreshMode::kPerBank ? refresh_sets_ : 1);
  Tick latest = now_;
  for (const Pseudochannel& pc : pcs_) {
    if (pc.entries > 0 || pc.open != 0 || pc.blocked != 0) return;
    latest = std::max(latest, pc.refresh_due);
  }
  const Tick times = (until - latest) / rotation - 2;
  if (times <= 0) return;
  for (Pseudochannel& pc : pcs_) {
    pc.refresh_due += times * rotation;
    const auto count = static_cast<std::uint64_t>(times);
    if (config_.refresh == RefreshMode::kPerBank)
      pc.stats.refreshes_bank += count * static_cast<std::uint64_t>(refresh_sets_);
    else
      pc.stats.refreshes_all += count;
  }
}

bool Channel::step(Tick horizon) {
  static constexpr Candidate kNothing;
  if (queued_[0] + queued_[1] == 0 && trace_ == nullptr && refresh_interval_ < kForever) {
    // A horizon of kForever means "up to the next arrival".
    const Tick until = std::min(next_arrival_, horizon);
    if (until < kForever && until - now_ > 4 * refresh_interval_) skip_idle(until);
  }
  while (true) {
    if (next_arrival_ <= now_) admit();
    update_mode();
    const Candidate* best = &kNothing;
    for (std::int16_t p = 0; p < static_cast<std::int16_t>(pcs_.size()); ++p) {
      const Candidate* own = pseudochannel_candidate(p);
      if (own->at < best->at || (own->at == best->at && own->age < best->age)) best = own;
    }
    // An arrival before the command may change the choice. (Arrivals at a full queue are not visible yet.)
    if (next_arrival_ > now_ && next_arrival_ < best->at) {
      if (next_arrival_ > horizon) return false;
      now_ = next_arrival_;
      continue;
    }
    if (best->at > horizon || best->at >= kForever) return false;
    now_ = best->at;
    if (best->command == Command::kNone) continue;  // a refresh is due: block its banks, then choose again
    issue(*best);
    return true;
  }
}

/// The pseudo-channel's next command. Returns a pointer to avoid a copy per command.
const Channel::Candidate* Channel::pseudochannel_candidate(std::int16_t index) {
  Pseudochannel& pc = pcs_[to_size(index)];
  if (now_ >= pc.refresh_due) block_for_refresh(pc);
  if (pc.column_stale || pc.column.at < std::max(now_, column_bus_)) find_column(index);
  if (pc.row_stale || pc.row.at < std::max(now_, row_bus_)) find_row(index);
  const Candidate* best = pc.row.at < pc.column.at ? &pc.row : &pc.column;
  if (config_.row_policy == RowPolicy::kTimeout) {
    pc.other = idle_precharge(index);
    if (pc.other.at < best->at) best = &pc.other;
  }
  if (pc.blocked != 0) {
    const Candidate refresh = refresh_candidate(index);
    if (refresh.at > best->at) return best;
    pc.other = refresh;
    return &pc.other;
  }
  if (best->at < pc.refresh_due) return best;
  pc.other = {.at = pc.refresh_due, .age = 0, .pseudochannel = index, .command = Command::kNone};
  return &pc.other;
}

Tick Channel::column_ready(const Pseudochannel& pc, const Entry& entry, std::size_t direction, Tick soonest) const {
  Tick at =
      std::max({soonest, pc.banks[entry.bank].next_column[direction], pc.groups[entry.group].next_column[direction]});
  if (direction == 0 && entry.sid != pc.last_sid) at = std::max(at, pc.next_other_sid);
  return align(at);
}

void Channel::find_column(std::int16_t index) {
  Pseudochannel& pc = pcs_[to_size(index)];
  const auto d = to_size(direction_);
  Candidate& best = pc.column;
  best = {};
  best.pseudochannel = index;
  best.command = d == 0 ? Command::kRead : Command::kWrite;
  pc.column_stale = false;
  const Tick soonest = align(std::max({now_, column_bus_, pc.next_column[d]}));
  for (Index i = pc.head[d]; i != kNone;) {
    const Entry& entry = entries_[to_size(i)];
    if (may_serve(pc, entry, d)) {
      const Tick at = column_ready(pc, entry, d, soonest);
      if (at < best.at) {
        best.at = at;
        best.age = entry.age;
        best.entry = i;
        if (at == soonest) return;  // the oldest of the earliest
      }
    }
    i = entry.next;
  }
}

Tick Channel::activate_ready(const Pseudochannel& pc, int bank) const {
  return std::max({pc.next_activate, pc.groups[to_size(group_of(bank))].next_activate,
                   pc.banks[to_size(bank)].next_activate, pc.activations[to_size(pc.activation)] + t_.faw});
}

void Channel::find_row(std::int16_t index) {
  Pseudochannel& pc = pcs_[to_size(index)];
  const auto d = to_size(direction_);
  Candidate& best = pc.row;
  best = {};
  pc.row_stale = false;
  std::uint64_t left = pc.want_row[d] & ~pc.blocked;
  const Tick bus = std::max(now_, row_bus_);
  for (; left != 0; left &= left - 1) {
    const auto b = static_cast<std::int16_t>(std::countr_zero(left));
    const Bank& bank = pc.banks[to_size(b)];
    const bool closed = bank.open_row < 0;
    const Tick at =
        closed ? align(std::max(bus, activate_ready(pc, b))) : std::max({bus, bank.next_precharge, pc.next_precharge});
    const std::uint64_t age = bank.oldest_conflict[d];
    if (at < best.at || (at == best.at && age < best.age)) {
      best.at = at;
      best.age = age;
      best.bank = b;
      best.command = closed ? Command::kActivate : Command::kPrecharge;
    }
  }
  best.pseudochannel = index;
}

Channel::Candidate Channel::idle_precharge(std::int16_t index) {
  const Pseudochannel& pc = pcs_[to_size(index)];
  Candidate best;
  for (std::uint64_t left = pc.open & ~pc.blocked; left != 0; left &= left - 1) {
    const auto b = static_cast<std::int16_t>(std::countr_zero(left));
    const Bank& bank = pc.banks[to_size(b)];
    if (bank.waiting[0] + bank.waiting[1] > 0) continue;
    const Tick at = std::max({now_, row_bus_, bank.next_precharge, pc.next_precharge,
                              std::max(bank.last_column, bank.activated) + row_timeout_});
    if (at < best.at)
      best = {.at = at, .age = UINT64_MAX, .pseudochannel = index, .bank = b, .command = Command::kPrecharge};
  }
  return best;
}

void Channel::block_for_refresh(Pseudochannel& pc) {
  if (pc.blocked != 0) return;
  pc.column_stale = pc.row_stale = true;
  if (config_.refresh == RefreshMode::kAllBank) {
    pc.blocked = ~std::uint64_t{0};
  } else {
    pc.blocked = std::uint64_t{1} << pc.refresh_bank;
    if (config_.standard.refresh_bank_pairs) pc.blocked |= std::uint64_t{1} << (pc.refresh_bank + refresh_sets_);
  }
  // Banks still occupied by a refresh in progress keep their share of the previous interval.
  if (pc.refresh_end < pc.refresh_due) pc.refresh_begin = pc.refresh_due;
}

Channel::Candidate Channel::refresh_candidate(std::int16_t index) {
  return config_.refresh == RefreshMode::kAllBank ? refresh_all_candidate(index) : refresh_bank_candidate(index);
}

Channel::Candidate Channel::refresh_all_candidate(std::int16_t index) {
  const Pseudochannel& pc = pcs_[to_size(index)];
  Candidate candidate;
  candidate.pseudochannel = index;
  const Tick bus = std::max(now_, row_bus_);
  if (pc.open == 0) {
    candidate.at = align(std::max(bus, pc.refresh_ready));
    candidate.command = Command::kRefreshAll;
    return candidate;
  }
  Tick at = std::max(bus, pc.next_precharge);
  for (std::uint64_t left = pc.open; left != 0; left &= left - 1)
    at = std::max(at, pc.banks[to_size(std::countr_zero(left))].next_precharge);
  candidate.at = at;
  candidate.command = Command::kPrechargeAll;
  return candidate;
}

Channel::Candidate Channel::refresh_bank_candidate(std::int16_t index) {
  const Pseudochannel& pc = pcs_[to_size(index)];
  Candidate candidate;
  candidate.pseudochannel = index;
  const Tick bus = std::max(now_, row_bus_);
  if (const std::uint64_t open = pc.open & pc.blocked; open != 0) {
    candidate.bank = static_cast<std::int16_t>(std::countr_zero(open));
    candidate.at = std::max({bus, pc.next_precharge, pc.banks[to_size(candidate.bank)].next_precharge});
    candidate.command = Command::kPrecharge;
    return candidate;
  }
  Tick at = std::max({bus, pc.next_refresh_bank, pc.next_activate});
  for (std::uint64_t left = pc.blocked; left != 0; left &= left - 1)
    at = std::max(at, pc.banks[to_size(std::countr_zero(left))].next_activate);
  candidate.at = align(at);
  candidate.bank = static_cast<std::int16_t>(pc.refresh_bank);
  candidate.command = Command::kRefreshBank;
  return candidate;
}

}  // namespace dllm::npu::dram
