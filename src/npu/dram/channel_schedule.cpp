// Which command is next: candidates per pseudo-channel for the column bus, the row bus and refresh.
#include <algorithm>
#include <bit>

#include "npu/dram/channel.h"

namespace dllm::npu::dram {

bool Channel::step(Tick horizon) {
  while (true) {
    admit();
    update_mode();
    Candidate best;
    const auto consider = [&best](const Candidate& candidate) {
      if (candidate.at < best.at || (candidate.at == best.at && candidate.age < best.age)) best = candidate;
    };
    for (int p = 0; p < static_cast<int>(pcs_.size()); ++p) {
      Pseudochannel& pc = pcs_[static_cast<std::size_t>(p)];
      if (now_ >= pc.refresh_due) block_for_refresh(pc);
      Candidate own = column_candidate(p);
      const Candidate row = row_candidate(p);
      if (row.at < own.at) own = row;
      if (config_.row_policy == RowPolicy::kTimeout) {
        const Candidate precharge = idle_precharge(p);
        if (precharge.at < own.at) own = precharge;
      }
      if (own.at >= pc.refresh_due || pc.blocked != 0) {
        // A refresh that falls due before the next command blocks its banks first.
        if (pc.blocked == 0) {
          own = Candidate{.at = pc.refresh_due, .age = 0, .pseudochannel = p, .command = Command::kRefreshAll};
        } else {
          const Candidate refresh = refresh_candidate(p);
          if (refresh.at <= own.at) own = refresh;
        }
      }
      consider(own);
    }
    // An arrival before the command may change the choice. (Behind a full queue nothing new can be seen.)
    if (!pending_.empty() && pending_.front().arrival > now_ && pending_.front().arrival < best.at) {
      if (pending_.front().arrival > horizon) return false;
      now_ = pending_.front().arrival;
      continue;
    }
    if (best.at > horizon || best.at >= kForever) return false;
    now_ = best.at;
    Pseudochannel& pc = pcs_[static_cast<std::size_t>(best.pseudochannel)];
    if (best.at >= pc.refresh_due && pc.blocked == 0) continue;  // block, then choose again
    issue(best);
    return true;
  }
}

Channel::Candidate Channel::column_candidate(int index) {
  const Pseudochannel& pc = pcs_[static_cast<std::size_t>(index)];
  const auto d = static_cast<std::size_t>(direction_);
  Candidate best;
  const std::uint64_t closed_to_us = pc.blocked | pc.capped[d];
  const Tick soonest = align(std::max({now_, column_bus_, pc.next_column[d]}));
  for (Index i = pc.head[d]; i != kNone;) {
    const Entry& entry = entries_[static_cast<std::size_t>(i)];
    const Bank& bank = pc.banks[entry.bank];
    if (bank.open_row == entry.row && ((closed_to_us >> entry.bank) & 1) == 0) {
      Tick at = std::max({soonest, bank.next_column[d], pc.groups[static_cast<std::size_t>(group_of(entry.bank))].next_column[d]});
      if (d == 0 && sid_of(entry.bank) != pc.last_sid) at = std::max(at, pc.next_other_sid);
      at = align(at);
      if (at < best.at) {
        best.at = at;
        best.age = entry.age;
        best.entry = i;
        if (at == soonest) break;  // the oldest of the soonest
      }
    }
    i = entry.next;
  }
  best.pseudochannel = index;
  best.command = d == 0 ? Command::kRead : Command::kWrite;
  return best;
}

Tick Channel::activate_ready(const Pseudochannel& pc, int bank) const {
  return std::max({pc.next_activate, pc.groups[static_cast<std::size_t>(group_of(bank))].next_activate,
                   pc.banks[static_cast<std::size_t>(bank)].next_activate,
                   pc.activations[static_cast<std::size_t>(pc.activation)] + t_.faw});
}

Channel::Candidate Channel::row_candidate(int index) {
  const Pseudochannel& pc = pcs_[static_cast<std::size_t>(index)];
  const auto d = static_cast<std::size_t>(direction_);
  Candidate best;
  best.pseudochannel = index;
  std::uint64_t left = pc.want_row[d] & ~pc.blocked;
  if (left == 0) return best;
  const Tick bus = std::max(now_, row_bus_);
  for (Index i = pc.head[d]; i != kNone && left != 0;) {
    const Entry& entry = entries_[static_cast<std::size_t>(i)];
    const std::uint64_t bit = std::uint64_t{1} << entry.bank;
    const Bank& bank = pc.banks[entry.bank];
    if ((left & bit) != 0 && entry.row != bank.open_row) {
      left &= ~bit;
      const bool closed = bank.open_row < 0;
      const Tick at = closed ? align(std::max(bus, activate_ready(pc, entry.bank)))
                             : std::max({bus, bank.next_precharge, pc.next_precharge});
      if (at < best.at) {
        best = {.at = at,
                .age = entry.age,
                .pseudochannel = index,
                .entry = i,
                .bank = entry.bank,
                .command = closed ? Command::kActivate : Command::kPrecharge};
        if (at == bus) break;
      }
    }
    i = entry.next;
  }
  return best;
}

Channel::Candidate Channel::idle_precharge(int index) {
  const Pseudochannel& pc = pcs_[static_cast<std::size_t>(index)];
  Candidate best;
  for (std::uint64_t left = pc.open & ~pc.blocked; left != 0; left &= left - 1) {
    const int b = std::countr_zero(left);
    const Bank& bank = pc.banks[static_cast<std::size_t>(b)];
    if (bank.waiting[0] + bank.waiting[1] > 0) continue;
    const Tick at = std::max({now_, row_bus_, bank.next_precharge, pc.next_precharge,
                              std::max(bank.last_column, bank.activated) + row_timeout_});
    if (at < best.at) best = {.at = at, .age = UINT64_MAX, .pseudochannel = index, .bank = b, .command = Command::kPrecharge};
  }
  return best;
}

void Channel::block_for_refresh(Pseudochannel& pc) {
  if (pc.blocked != 0) return;
  if (config_.refresh == RefreshMode::kAllBank) {
    pc.blocked = ~std::uint64_t{0};
  } else {
    pc.blocked = std::uint64_t{1} << pc.refresh_bank;
    if (config_.standard.refresh_bank_pairs) pc.blocked |= std::uint64_t{1} << (pc.refresh_bank + refresh_sets_);
  }
  // Banks that a refresh in flight still occupies keep their share of the earlier interval.
  if (pc.refresh_end < pc.refresh_due) pc.refresh_begin = pc.refresh_due;
}

Channel::Candidate Channel::refresh_candidate(int index) {
  return config_.refresh == RefreshMode::kAllBank ? refresh_all_candidate(index) : refresh_bank_candidate(index);
}

Channel::Candidate Channel::refresh_all_candidate(int index) {
  const Pseudochannel& pc = pcs_[static_cast<std::size_t>(index)];
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
    at = std::max(at, pc.banks[static_cast<std::size_t>(std::countr_zero(left))].next_precharge);
  candidate.at = at;
  candidate.command = Command::kPrechargeAll;
  return candidate;
}

Channel::Candidate Channel::refresh_bank_candidate(int index) {
  const Pseudochannel& pc = pcs_[static_cast<std::size_t>(index)];
  Candidate candidate;
  candidate.pseudochannel = index;
  const Tick bus = std::max(now_, row_bus_);
  if (const std::uint64_t open = pc.open & pc.blocked; open != 0) {
    candidate.bank = std::countr_zero(open);
    candidate.at = std::max({bus, pc.next_precharge, pc.banks[static_cast<std::size_t>(candidate.bank)].next_precharge});
    candidate.command = Command::kPrecharge;
    return candidate;
  }
  Tick at = std::max({bus, pc.next_refresh_bank, pc.next_activate});
  for (std::uint64_t left = pc.blocked; left != 0; left &= left - 1)
    at = std::max(at, pc.banks[static_cast<std::size_t>(std::countr_zero(left))].next_activate);
  candidate.at = align(at);
  candidate.bank = pc.refresh_bank;
  candidate.command = Command::kRefreshBank;
  return candidate;
}

}  // namespace dllm::npu::dram
