#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

#include "base/try.h"
#include "npu_core/device/device.h"
#include "npu_core/machine/machine.h"
#include "test/dram_port.h"
#include "test/vectors.h"

namespace dllm::rtl {

/// How memory behaves: after how many cycles a burst's first beat comes, and one in how many cycles a channel waits.
struct MemoryTiming {
  std::uint32_t latency = 0;  ///< at most, random
  std::uint32_t stall = 0;    ///< 0: never
  bool dram = false;          ///< the device's DRAM behind the port, instead of a latency
};

/// The device's DRAM as the simulator begins a program with it, if the timing says so. Errors: those of
/// MemorySystem::create().
inline Expected<std::optional<DramPort>> dram_port(const npu::Device& device, MemoryTiming timing) {
  if (!timing.dram) return std::optional<DramPort>();
  DLLM_TRY(npu::dram::MemorySystem memory, npu::dram::MemorySystem::create(device.memory_config, device.period_fs()));
  return std::optional<DramPort>(std::move(memory));
}

/// The other side of the core's AXI4 port: bytes of a machine's HBM, in order.
class MemoryModel {
 public:
  MemoryModel(npu::Machine& machine, MemoryTiming timing, std::uint64_t seed, std::optional<DramPort> dram = {})
      : state_(machine.state()), timing_(timing), random_(seed), dram_(std::move(dram)) {}

  /// Drives the inputs of a cycle; call it before the clock edge.
  template <class Model>
  void drive(Model& model) {
    ++now_;
    model.ar_ready_i = !stalls();
    model.aw_ready_i = !stalls();
    model.w_ready_i = !stalls();
    if (!r_waits_) r_valid_ = !reads_.empty() && beat_is_there<sizeof(model.r_data_i)>(reads_.front()) && !stalls();
    if (!b_waits_) b_valid_ = !answers_.empty() && is_written(answers_.front()) && !stalls();
    model.r_valid_i = r_valid_;
    model.b_valid_i = b_valid_;
    if (!r_valid_) return;
    const Burst& burst = reads_.front();
    constexpr std::size_t kBeat = sizeof(model.r_data_i);
    const std::uint64_t at = beat_of<kBeat>(burst);
    for (std::size_t i = 0; i < kBeat; ++i)
      bytes_[i] = at + i < state_.hbm.size() ? state_.hbm[at + i] : std::byte{0xa5};
    std::memcpy(&model.r_data_i, bytes_, kBeat);
    model.r_last_i = burst.done == burst.length;
  }
  /// Takes what the core sends in this cycle; call it when its outputs follow the inputs.
  template <class Model>
  void sample(Model& model) {
    constexpr std::size_t kBeat = sizeof(model.r_data_i);
    if (model.ar_valid_o && model.ar_ready_i) {
      reads_.push_back({model.ar_address_o, model.ar_length_o, 0, later(), {}});
      ask<kBeat>(reads_.back(), npu::dram::Access::kRead);
    }
    if (model.aw_valid_o && model.aw_ready_i) writes_.push_back({model.aw_address_o, model.aw_length_o, 0, 0, {}});
    r_waits_ = r_valid_ && !model.r_ready_o;
    b_waits_ = b_valid_ && !model.b_ready_o;
    if (r_valid_ && model.r_ready_o && reads_.front().done++ == reads_.front().length) reads_.pop_front();
    if (b_valid_ && model.b_ready_o) answer(kBeat);
    if (model.w_valid_o && model.w_ready_i) {
      Beat beat{{}, static_cast<std::uint64_t>(model.w_strobe_o), model.w_last_o != 0};
      std::memcpy(beat.bytes, &model.w_data_o, kBeat);
      beats_.push_back(beat);
    }
    while (!beats_.empty() && !writes_.empty()) collect<kBeat>();
  }

 private:
  struct Burst {
    std::uint64_t address;
    std::uint32_t length;  ///< beats minus 1
    std::uint32_t done;
    std::uint64_t from;  ///< cycle
    DramPort::Burst dram;
  };
  struct Beat {
    std::byte bytes[64];
    std::uint64_t strobe;
    bool last;
  };
  bool stalls() { return timing_.stall != 0 && random_.one_in(timing_.stall); }
  std::uint64_t later() { return now_ + 1 + (timing_.latency == 0 ? 0 : random_.below(timing_.latency)); }

  template <std::size_t kBeat>
  static std::uint64_t beat_of(const Burst& burst) {
    return (burst.address / kBeat + burst.done) * kBeat;
  }
  template <std::size_t kBeat>
  bool beat_is_there(Burst& burst) {
    if (burst.from > now_) return false;
    return !dram_ || burst.dram.has(*dram_, beat_of<kBeat>(burst), static_cast<std::int64_t>(now_));
  }
  bool is_written(Burst& burst) {
    return burst.from <= now_ && (!dram_ || burst.dram.complete(*dram_, static_cast<std::int64_t>(now_)));
  }
  /// A burst reaches the controller in the next cycle.
  template <std::size_t kBeat>
  void ask(Burst& burst, npu::dram::Access access) {
    const std::uint64_t first = burst.address / kBeat * kBeat, bytes = (std::uint64_t{burst.length} + 1) * kBeat;
    if (dram_) burst.dram = dram_->ask(first, bytes, access, static_cast<std::int64_t>(now_) + 1);
  }

  /// A beat of the oldest burst.
  template <std::size_t kBeat>
  void collect() {
    Burst& burst = writes_.front();
    collected_.push_back(beats_.front());
    beats_.pop_front();
    if (burst.done++ != burst.length) return;
    burst.from = later();
    ask<kBeat>(burst, npu::dram::Access::kWrite);
    answers_.push_back(burst);
    writes_.pop_front();
  }
  /// Bytes are in memory when their burst is answered, not before: who reads them earlier gets the old ones.
  void answer(std::size_t beat_bytes) {
    const Burst burst = answers_.front();
    answers_.pop_front();
    for (std::uint64_t beat = 0; beat <= burst.length; ++beat) {
      const std::uint64_t at = (burst.address / beat_bytes + beat) * beat_bytes;
      const Beat& data = collected_.front();
      for (std::size_t i = 0; i < beat_bytes; ++i)
        if ((data.strobe >> i & 1) != 0 && at + i < state_.hbm.size()) state_.hbm[at + i] = data.bytes[i];
      collected_.pop_front();
    }
  }

  npu::MachineState& state_;
  MemoryTiming timing_;
  Vectors random_;
  std::uint64_t now_ = 0;
  std::deque<Burst> reads_, writes_, answers_;
  std::deque<Beat> beats_, collected_;
  std::optional<DramPort> dram_;
  bool r_valid_ = false, b_valid_ = false, r_waits_ = false, b_waits_ = false;
  std::byte bytes_[64] = {};
};

}  // namespace dllm::rtl
