#pragma once

#include <cstdint>
#include <cstring>
#include <deque>

#include "npu_core/machine/machine.h"
#include "test/vectors.h"

namespace dllm::rtl {

/// How memory behaves: after how many cycles a burst's first beat comes, and one in how many cycles a channel waits.
struct MemoryTiming {
  std::uint32_t latency = 0;  ///< at most, random
  std::uint32_t stall = 0;    ///< 0: never
};

/// The other side of the core's AXI4 port: bytes of a machine's HBM, in order.
class MemoryModel {
 public:
  MemoryModel(npu::Machine& machine, MemoryTiming timing, std::uint64_t seed)
      : state_(machine.state()), timing_(timing), random_(seed) {}

  /// Drives the inputs of a cycle; call it before the clock edge.
  template <class Model>
  void drive(Model& model) {
    ++now_;
    model.ar_ready_i = !stalls();
    model.aw_ready_i = !stalls();
    model.w_ready_i = !stalls();
    if (!r_waits_) r_valid_ = !reads_.empty() && reads_.front().from <= now_ && !stalls();
    if (!b_waits_) b_valid_ = !answers_.empty() && answers_.front().from <= now_ && !stalls();
    model.r_valid_i = r_valid_;
    model.b_valid_i = b_valid_;
    if (!r_valid_) return;
    const Burst& burst = reads_.front();
    constexpr std::size_t kBeat = sizeof(model.r_data_i);
    const std::uint64_t at = burst.address / kBeat * kBeat + burst.done * kBeat;
    for (std::size_t i = 0; i < kBeat; ++i)
      bytes_[i] = at + i < state_.hbm.size() ? state_.hbm[at + i] : std::byte{0xa5};
    std::memcpy(&model.r_data_i, bytes_, kBeat);
    model.r_last_i = burst.done == burst.length;
  }
  /// Takes what the core sends in this cycle; call it when its outputs follow the inputs.
  template <class Model>
  void sample(Model& model) {
    constexpr std::size_t kBeat = sizeof(model.r_data_i);
    if (model.ar_valid_o && model.ar_ready_i) reads_.push_back({model.ar_address_o, model.ar_length_o, 0, later()});
    if (model.aw_valid_o && model.aw_ready_i) writes_.push_back({model.aw_address_o, model.aw_length_o, 0, 0});
    r_waits_ = r_valid_ && !model.r_ready_o;
    b_waits_ = b_valid_ && !model.b_ready_o;
    if (r_valid_ && model.r_ready_o && reads_.front().done++ == reads_.front().length) reads_.pop_front();
    if (b_valid_ && model.b_ready_o) answer(kBeat);
    if (model.w_valid_o && model.w_ready_i) {
      Beat beat{{}, static_cast<std::uint32_t>(model.w_strobe_o), model.w_last_o != 0};
      std::memcpy(beat.bytes, &model.w_data_o, kBeat);
      beats_.push_back(beat);
    }
    while (!beats_.empty() && !writes_.empty()) collect();
  }

 private:
  struct Burst {
    std::uint64_t address;
    std::uint32_t length;  ///< beats minus 1
    std::uint32_t done;
    std::uint64_t from;  ///< cycle
  };
  struct Beat {
    std::byte bytes[32];
    std::uint32_t strobe;
    bool last;
  };
  bool stalls() { return timing_.stall != 0 && random_.one_in(timing_.stall); }
  std::uint64_t later() { return now_ + 1 + (timing_.latency == 0 ? 0 : random_.below(timing_.latency)); }

  /// A beat of the oldest burst.
  void collect() {
    Burst& burst = writes_.front();
    collected_.push_back(beats_.front());
    beats_.pop_front();
    if (burst.done++ != burst.length) return;
    burst.from = later();
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
  bool r_valid_ = false, b_valid_ = false, r_waits_ = false, b_waits_ = false;
  std::byte bytes_[32] = {};
};

}  // namespace dllm::rtl
