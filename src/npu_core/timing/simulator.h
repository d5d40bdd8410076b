#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "npu_core/dram/memory_system.h"
#include "npu_core/timing/repeats.h"
#include "npu_core/timing/report.h"
#include "npu_core/timing/transfers.h"
#include "npu_core/timing/vector_unit.h"

namespace dllm::npu {

/// One instruction where it executed, for traces.
struct ExecutedInstruction {
  const IssueEvent* event = nullptr;
  Engine engine = Engine::kFrontEnd;
  std::uint32_t region = 0;
  Cycle dispatched = 0, start = 0, done = 0;
  Cycle busy_until = 0;     ///< the next instruction of the same part starts no earlier
  Pipe pipe = Pipe::kNone;  ///< of the vector unit
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void instruction(const ExecutedInstruction& executed) = 0;
  virtual void transfer(const FinishedTransfer& finished) = 0;
};

/// The cycle-accurate model: an observer of the functional machine, which reports every instruction in program order
/// with resolved addresses (RunOptions::data = false is enough).
///
/// Overlapped issue: the front end dispatches up to `width` instructions per cycle in order, and executes integer and
/// control instructions itself. The others wait in the queue of their unit, which starts them in order as soon as their
/// operands are ready; the scoreboard tracks registers, rows of VRAM and groups of rows of MRAM. An instruction that
/// needs data from DRAM leaves the front end only when the rows have arrived. Transfers themselves are asynchronous;
/// C_FENCE waits for those of a tag.
///
/// As every unit executes in order, the start of an instruction depends only on older ones, and one pass in program
/// order computes all times. Deterministic. Not thread-safe.
class TimingSimulator final : public IssueObserver {
 public:
  /// `device`, `machine` and `program` must outlive the simulator. Errors: options out of range; a machine whose HBM is
  /// larger than the device's memory; the memory system's.
  static Expected<std::unique_ptr<TimingSimulator>> create(const Device& device, const MachineConfig& machine,
                                                           const Program& program, const TimingOptions& options);
  ~TimingSimulator() override;

  void set_trace(TraceSink* sink) { sink_ = sink; }
  void on_issue(const IssueEvent& event) override;
  /// After the run: completes everything in flight and attributes every cycle. Call it once.
  TimingReport finish();

 private:
  TimingSimulator(const Device& device, const MachineConfig& machine, const Program& program,
                  const TimingOptions& options, dram::MemorySystem memory);

  /// Limits how far the front end may run ahead of a unit.
  struct UnitQueue {
    std::vector<Cycle> starts;
    std::size_t next = 0;
    Cycle admit() const { return starts[next]; }  ///< when the instruction `queue` places ahead has left
    void push(Cycle start) {
      starts[next] = start;
      next = next + 1 == starts.size() ? 0 : next + 1;
    }
  };

  void serial(const IssueEvent& event);
  void settle_serial(Engine engine, Cycle cycles);
  void overlapped(const IssueEvent& event);
  // Conditions before dispatch, and the dispatch.
  Earliest head() const;
  void await_operands(const IssueEvent& event, Earliest& earliest);
  void await_data(const IssueEvent& event, Earliest& earliest);
  Cycle dispatch(const Earliest& earliest);
  // Units.
  void front_end(const IssueEvent& event, Earliest earliest);
  void vector(const IssueEvent& event, Earliest earliest);
  void scalar(const IssueEvent& event, Earliest earliest);
  void matrix(const IssueEvent& event, Earliest earliest);
  void write_out(const IssueEvent& event, Earliest earliest);
  void transfer(const IssueEvent& event, Earliest earliest);
  // Registers f0-f7 of an instruction that starts in a unit.
  void await_registers(const IssueEvent& event, const Cost& cost, Earliest& earliest);
  void book_registers(const IssueEvent& event, const Cost& cost, Cycle start, Cycle done, Engine engine);
  /// Reads and writes of cells outside the vector unit: constraints, then the new state.
  void await_cells(const IssueEvent& event, Earliest& earliest, Cycle latency);
  void book_cells(const IssueEvent& event, Cycle read_until, Cycle ready, Engine engine);

  /// For statistics and traces, with the new busy cycles of the engine.
  void executed(const ExecutedInstruction& instruction, Cycle busy);
  void fetch(std::uint32_t index);
  void collect_transfers();
  void report_memory(Cycle simulated);
  void report_energy();
  void period_begins();
  TimingSnapshot snapshot();
  RegionTiming& region() { return regions_[region_]; }

  const Device& device_;
  const MachineConfig& machine_;
  const Program& program_;
  TimingOptions options_;
  dram::MemorySystem memory_;
  LatencyTable latencies_;
  Scoreboard board_;
  PortCalendar ports_;
  std::optional<PortCalendar> matrix_port_;  ///< if array and transfers share one
  Accounts accounts_;
  Transfers transfers_;
  VectorUnit vector_unit_;

  Cycle head_ = 0;                    ///< cycle of the last dispatch
  int slots_ = 0;                     ///< dispatched in it
  Cause head_cause_ = Cause::kIssue;  ///< why `head_` is later than the last dispatch
  Cycle int_free_ = 0;
  Cycle now_ = 0;  ///< serial issue
  std::array<RegisterTime, kGpRegisters> gp_ = {};
  std::array<RegisterTime, kFpRegisters> fp_ = {};
  UnitQueue vector_queue_, scalar_queue_, matrix_queue_, load_queues_[2], store_queue_;
  Cycle scalar_free_ = 0, matrix_free_ = 0, drain_free_ = 0;
  struct AccumulatorTime {
    Cycle done = 0;              ///< end of the running sum
    bool open = false;           ///< additions since the last write-out
    std::vector<Cycle> drained;  ///< when each buffer was written out
    std::size_t next = 0;
  };
  std::array<AccumulatorTime, kSpaceCount - static_cast<int>(Space::kAccMm)> accumulators_;
  std::array<Cycle, 2> load_start_ = {};
  Cycle store_start_ = 0;

  std::vector<std::uint32_t> region_of_;  ///< [instruction] index into regions_
  std::vector<RegionTiming> regions_;
  std::uint32_t region_ = 0, last_region_ = ~std::uint32_t{0};
  PeriodicRegions periods_;
  RepeatedPeriod repeated_;
  std::uint32_t next_period_ = 0;
  bool skipping_ = false;
  std::uint32_t fetched_ = 0;  ///< instructions before this index have been in instruction SRAM
  TimingReport report_;
  Cycle last_done_ = 0;
  TraceSink* sink_ = nullptr;
  std::chrono::steady_clock::time_point began_;
};

/// Runs a program on a machine without data and reports its timing. The machine's registers are reset first. Errors:
/// traps; more than `max_instructions` executed.
Expected<TimingReport> simulate(const Device& device, const MachineConfig& machine, const Program& program,
                                const TimingOptions& options, TraceSink* sink = nullptr,
                                std::uint64_t max_instructions = std::uint64_t{1} << 40);

}  // namespace dllm::npu
