#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "npu_core/timing/simulator.h"

namespace dllm::npu {

/// A Chrome JSON trace, for ui.perfetto.dev: tracks of the front end, the array, its write-outs, each pipe of the
/// vector unit, the scalar unit and each transfer in flight, without overlapping slices on a track; regions above
/// them; flows from the slice that produced a row to those that read it; counters of the bytes moved to and from
/// DRAM.
class PerfettoTrace final : public TraceSink {
 public:
  /// `period_ns`: of the device's clock. At most `limit` slices and flows; the first are kept.
  PerfettoTrace(const Program& program, double period_ns, std::uint64_t limit);
  void instruction(const ExecutedInstruction& executed) override;
  void transfer(const FinishedTransfer& finished) override;

  std::uint64_t dropped() const { return dropped_; }
  std::string text(const TimingReport& report) const;

 private:
  /// What shares a group of tracks: an engine, or a pipe of the vector unit.
  struct Group {
    std::string name;
    std::vector<Cycle> free;  ///< of each track
  };
  struct Slice {
    std::uint32_t group = 0, track = 0;
    Cycle start = 0, end = 0;
    std::string_view name;
    std::string args;
  };
  /// A slice by its index, or a transfer by its engine and number: it finishes only after its readers are known.
  struct Producer {
    Engine engine = Engine::kFrontEnd;
    std::uint64_t number = 0;
    bool transfer = false;
  };
  struct Flow {
    Producer from;
    std::uint64_t to = 0;
  };
  struct Moved {
    Cycle start = 0, end = 0;
    std::uint64_t bytes = 0;
    bool write = false;
  };

  bool room();
  std::uint64_t slice(std::uint32_t group, Cycle start, Cycle end, std::string_view name, std::string args);
  std::uint32_t group_of(Engine engine, Pipe pipe);
  void region(const ExecutedInstruction& executed);
  void link(const ExecutedInstruction& executed, const Producer& self, std::uint64_t consumer);
  void end_region(Cycle at);
  std::string flow_text(const Slice& from, const Slice& to, std::uint64_t id) const;
  std::string counters(const TimingReport& report) const;

  const Program& program_;
  double period_us_;
  std::uint64_t limit_, events_ = 0, dropped_ = 0;
  std::map<std::pair<Engine, Pipe>, std::uint32_t> group_index_;
  std::vector<Group> groups_;
  std::vector<Slice> slices_;
  std::vector<Flow> flows_;
  std::vector<Moved> moved_;
  std::unordered_map<std::uint64_t, Producer> writer_;     ///< of a row, by memory and address
  std::map<Engine, std::uint64_t> asked_;                  ///< transfers, by engine
  std::map<Engine, std::vector<std::uint64_t>> finished_;  ///< their slices; ~0: dropped
  std::uint32_t region_ = ~std::uint32_t{0};
  Cycle region_start_ = 0, region_end_ = 0;
};

}  // namespace dllm::npu
