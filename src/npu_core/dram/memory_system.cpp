#include "npu_core/dram/memory_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/integers.h"
#include "base/to_size.h"
#include "base/try.h"

namespace dllm::npu::dram {
namespace {

Expected<void> check(const MemoryConfig& config) {
  const auto bad = [](std::string what, std::string hint) {
    return Error{ErrorCode::kUsage, std::move(what), "memory", std::move(hint)};
  };
  if (config.channels < 1 || config.channels > 64 || !std::has_single_bit(static_cast<unsigned>(config.channels)))
    return bad(fmt::format("{} channels", config.channels), "a power of two up to 64");
  if (config.read_queue < 1 || config.write_queue < 1 || config.read_queue + config.write_queue > 4096)
    return bad(fmt::format("queues of {} reads and {} writes", config.read_queue, config.write_queue),
               "at least 1 each, at most 4096 together");
  if (!(config.write_low >= 0 && config.write_low <= config.write_high && config.write_high < 1))
    return bad("the write watermarks are not 0 <= low <= high < 1", "the defaults are 0.2 and 0.8");
  if (config.hit_cap < 1) return bad("the hit cap is below 1", "1 is first come, first served per bank");
  if (!(config.frontend_ns >= 0) || !(config.row_timeout_ns >= 0)) return bad("a delay is negative", "");
  return {};
}

}  // namespace

Expected<MemorySystem> MemorySystem::create(const MemoryConfig& config, std::int64_t client_period_fs, bool trace) {
  DLLM_CHECK_OK(check(config));
  if (client_period_fs < 1) return Error{ErrorCode::kUsage, "the client's clock period is not positive", "memory", ""};
  DLLM_TRY(AddressMap map, AddressMap::named(config.mapping.empty() ? config.standard.default_mapping : config.mapping,
                                             config.standard, config.channels));
  return MemorySystem(config, std::move(map), client_period_fs, trace);
}

MemorySystem::MemorySystem(const MemoryConfig& config, AddressMap map, std::int64_t client_period_fs, bool trace)
    : config_(config),
      map_(std::move(map)),
      client_period_fs_(client_period_fs),
      tick_fs_(config.standard.tick_fs()),
      frontend_(static_cast<Tick>(std::ceil(config.frontend_ns * 1e6 / static_cast<double>(tick_fs_)))),
      burst_shift_(log2_exact(config.standard.burst_bytes)),
      trace_(std::make_unique<std::vector<CommandRecord>>()),
      shares_(std::make_unique<std::vector<TransferShare>>(1)),
      waited_(to_size(config.channels)) {
  channels_.reserve(to_size(config.channels));
  for (int c = 0; c < config.channels; ++c)
    channels_.emplace_back(config, c, shares_.get(), trace ? trace_.get() : nullptr);
}

Tick MemorySystem::tick_of(ClientCycle cycle) const { return (cycle * client_period_fs_ + tick_fs_ - 1) / tick_fs_; }

ClientCycle MemorySystem::cycle_of(Tick tick) const {
  return (tick * tick_fs_ + client_period_fs_ - 1) / client_period_fs_;
}

ClientCycle MemorySystem::now() const {
  Tick latest = 0;
  for (const Channel& channel : channels_) latest = std::max(latest, channel.now());
  return cycle_of(latest);
}

Expected<TransferId> MemorySystem::submit(std::uint64_t address, std::uint64_t bytes_wanted, Access access,
                                          ClientCycle arrival) {
  if (bytes_wanted == 0) return Error{ErrorCode::kUsage, "a transfer of 0 bytes", "", ""};
  if (address >= bytes() || bytes_wanted > bytes() - address)
    return Error{ErrorCode::kUsage,
                 fmt::format("bytes {:#x} .. {:#x} are beyond the end of the memory", address, address + bytes_wanted),
                 "", fmt::format("it has {} bytes", bytes())};
  if (arrival < 0 || arrival > (Channel::kForever / client_period_fs_))
    return Error{ErrorCode::kUsage, fmt::format("arrival at cycle {}", arrival), "", ""};
  const Tick tick = tick_of(arrival);
  for (const Channel& channel : channels_)
    if (tick < channel.now())
      return Error{ErrorCode::kUsage, fmt::format("arrival at cycle {}, but time is {}", arrival, now()), "",
                   "submit in the order of time"};
  return submit_unchecked(address, bytes_wanted, access, arrival);
}

/// A new share of the transfer for a channel.
std::uint32_t MemorySystem::new_share(Transfer& transfer, int channel) {
  std::uint32_t index = free_share_;
  if (index == 0) {
    index = static_cast<std::uint32_t>(shares_->size());
    shares_->emplace_back();
  } else {
    free_share_ = (*shares_)[index].next;
  }
  (*shares_)[index] = {0, 0, transfer.shares, channel};
  transfer.shares = index;
  return index;
}

TransferId MemorySystem::submit_unchecked(std::uint64_t address, std::uint64_t bytes_wanted, Access access,
                                          ClientCycle arrival) {
  TransferId id = 0;
  if (free_.empty()) {
    id = static_cast<TransferId>(transfers_.size());
    transfers_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Transfer& transfer = transfers_[id];
  transfer = {tick_of(arrival), 0, access == Access::kWrite};
  bytes_requested_ += bytes_wanted;
  const std::uint64_t end = (address + bytes_wanted - 1) >> burst_shift_;
  std::uint64_t seen = 0;  // channels with a share in current_
  const auto run = static_cast<std::uint64_t>(map_.run());
  for (std::uint64_t burst = address >> burst_shift_; burst <= end;) {
    const std::uint64_t bursts = std::min(end + 1, (burst / run + 1) * run) - burst;
    const Location at = map_.locate(burst);
    Segment segment;
    segment.arrival = transfer.arrival;
    std::uint32_t& share = current_[to_size(at.channel)];
    if (((seen >> at.channel) & 1) == 0) share = new_share(transfer, at.channel);
    seen |= std::uint64_t{1} << at.channel;
    segment.share = share;
    segment.row = at.row;
    segment.column = at.column;
    segment.bursts = static_cast<std::uint16_t>(bursts);
    segment.pseudochannel = static_cast<std::uint8_t>(at.pseudochannel);
    segment.bank = static_cast<std::uint8_t>(at.bank);
    segment.write = transfer.write;
    channels_[to_size(at.channel)].submit(segment);
    burst += bursts;
  }
  return id;
}

ClientCycle MemorySystem::wait(TransferId id) {
  Transfer& transfer = transfers_[id];
  Tick finish = 0;
  for (std::uint32_t i = transfer.shares; i != 0;) {
    channels_[static_cast<std::size_t>((*shares_)[i].channel)].run_share(i);
    TransferShare& share = (*shares_)[i];
    finish = std::max(finish, share.finish);
    const std::uint32_t next = std::exchange(share.next, free_share_);
    free_share_ = std::exchange(i, next);
  }
  finished_ = std::max(finished_, finish);
  finish += frontend_;
  latencies_[transfer.write ? 1 : 0].add(finish - transfer.arrival);
  free_.push_back(id);
  return cycle_of(finish);
}

ClientCycle MemorySystem::wait_all(std::span<const TransferId> transfers) {
  for (const TransferId id : transfers)
    for (std::uint32_t i = transfers_[id].shares; i != 0; i = (*shares_)[i].next)
      waited_[static_cast<std::size_t>((*shares_)[i].channel)].push_back(i);
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    for (const std::uint32_t share : waited_[c]) channels_[c].run_share(share);
    waited_[c].clear();
  }
  ClientCycle last = 0;
  for (const TransferId id : transfers) last = std::max(last, wait(id));
  return last;
}

std::optional<ClientCycle> MemorySystem::wait_before(TransferId id, ClientCycle arrival) {
  const Tick horizon = tick_of(arrival) - 1;
  for (std::uint32_t i = transfers_[id].shares; i != 0; i = (*shares_)[i].next)
    if (!channels_[static_cast<std::size_t>((*shares_)[i].channel)].run_share(i, horizon)) return std::nullopt;
  return wait(id);
}

bool MemorySystem::done(TransferId id, ClientCycle cycle) {
  const Tick horizon = tick_of(cycle);
  const Transfer& transfer = transfers_[id];
  for (std::uint32_t i = transfer.shares; i != 0; i = (*shares_)[i].next) {
    channels_[static_cast<std::size_t>((*shares_)[i].channel)].run_until(horizon);
    if ((*shares_)[i].remaining > 0 || (*shares_)[i].finish + frontend_ > horizon) return false;
  }
  return true;
}

void MemorySystem::advance(ClientCycle cycle) {
  for (Channel& channel : channels_) channel.run_until(tick_of(cycle));
}

}  // namespace dllm::npu::dram
