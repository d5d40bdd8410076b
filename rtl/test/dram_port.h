#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "npu_core/dram/memory_system.h"

namespace dllm::rtl {

/// The device's DRAM behind the core's AXI4 port, command by command (src/npu_core/dram). An AXI burst is cut into
/// bursts of the DRAM. Those of the same kind that are on their way, or were the last to move, are not moved again: a
/// row of a narrow core has fewer bytes than a burst of the DRAM, and a controller keeps some.
class DramPort {
 public:
  /// Bursts of the DRAM in the order of their bytes.
  class Burst {
   public:
    /// Whether the burst with this byte is there (or written) in cycle `now`.
    bool has(DramPort& port, std::uint64_t address, std::int64_t now) {
      return port.complete(*lines_[static_cast<std::size_t>((address >> port.shift_) - first_)], now);
    }
    bool complete(DramPort& port, std::int64_t now) {
      for (const auto& line : lines_)
        if (!port.complete(*line, now)) return false;
      return true;
    }

   private:
    friend class DramPort;
    struct Line {
      std::uint64_t number;
      npu::dram::Access access;
      npu::dram::TransferId id;
      bool complete = false;
    };
    std::uint64_t first_ = 0;
    std::vector<std::shared_ptr<Line>> lines_;
  };

  explicit DramPort(npu::dram::MemorySystem memory) : memory_(std::move(memory)) {
    while ((1 << shift_) < memory_.config().standard.burst_bytes) ++shift_;
  }

  /// Bytes [address, address + bytes) are wanted, or come, in cycle `now`.
  Burst ask(std::uint64_t address, std::uint64_t bytes, npu::dram::Access access, std::int64_t now) {
    Burst burst;
    burst.first_ = address >> shift_;
    for (std::uint64_t n = burst.first_; n <= (address + bytes - 1) >> shift_; ++n)
      burst.lines_.push_back(line(n, access, now));
    return burst;
  }

 private:
  using Line = Burst::Line;
  static constexpr std::size_t kLines = 64;

  std::shared_ptr<Line> line(std::uint64_t number, npu::dram::Access access, std::int64_t now) {
    for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
      if ((*kept)->number != number) continue;
      // Of the other kind: what was read is written now, or the reverse, and moves again.
      if ((*kept)->access == access) return *kept;
      kept_.erase(kept);
      break;
    }
    const auto bytes = std::uint64_t{1} << shift_;
    const auto id = memory_.submit_unchecked(number << shift_, bytes, access, now);
    kept_.push_back(std::make_shared<Line>(Line{number, access, id}));
    if (kept_.size() > kLines) kept_.pop_front();
    return kept_.back();
  }
  bool complete(Line& line, std::int64_t now) {
    if (line.complete || !memory_.done(line.id, now)) return line.complete;
    memory_.wait(line.id);
    return line.complete = true;
  }

  npu::dram::MemorySystem memory_;
  std::deque<std::shared_ptr<Line>> kept_;
  int shift_ = 0;
};

}  // namespace dllm::rtl
