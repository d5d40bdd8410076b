#include "npu_core/timing/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_core/device/device.h"
#include "npu_core/device/energy.h"

namespace dllm::npu {
namespace {

/// In a period of this many refresh intervals, one refresh more or less changes the time by less than 1 %.
constexpr Cycle kRefreshesPerPeriod = 16;

/// The innermost region of every instruction. Regions are in order of `begin`, so later ones are the inner ones.
std::vector<std::uint32_t> innermost_regions(const Program& program) {
  std::vector<std::uint32_t> result(program.size(), 0);
  for (std::size_t r = 0; r < program.regions.size(); ++r)
    for (std::uint32_t i = program.regions[r].begin; i < program.regions[r].end; ++i)
      result[i] = static_cast<std::uint32_t>(r + 1);
  return result;
}

}  // namespace

Expected<std::unique_ptr<TimingSimulator>> TimingSimulator::create(const Device& device, const MachineConfig& machine,
                                                                   const Program& program,
                                                                   const TimingOptions& options) {
  DLLM_CHECK_OK(options.validate());
  DLLM_CHECK_OK(machine.validate());
  DLLM_TRY(dram::MemorySystem memory, dram::MemorySystem::create(device.memory_config, device.period_fs()));
  if (machine.hbm_bytes > memory.bytes())
    return Error{
        ErrorCode::kUsage,
        fmt::format("the program's machine has {} bytes of HBM, the device {}", machine.hbm_bytes, memory.bytes()),
        "timing", "shrink the machine, or give the device more stacks"};
  return std::unique_ptr<TimingSimulator>(new TimingSimulator(device, machine, program, options, std::move(memory)));
}

TimingSimulator::TimingSimulator(const Device& device, const MachineConfig& machine, const Program& program,
                                 const TimingOptions& options, dram::MemorySystem memory)
    : device_(device),
      machine_(machine),
      program_(program),
      options_(options),
      memory_(std::move(memory)),
      latencies_(device_.array, device_.latency, machine_, options_),
      board_(machine),
      ports_(static_cast<int>(std::min<std::int64_t>(device.sram.vector_ports, 255))),
      matrix_port_(device.sram.matrix_ports == 1 ? std::optional<PortCalendar>(1) : std::nullopt),
      transfers_(memory_, ports_, matrix_port_ ? &*matrix_port_ : nullptr, accounts_,
                 {.outstanding = to_size(device.prefetch.outstanding),
                  .bytes_per_cycle = device.memory.dma_gbps / device.clock.ghz,
                  .unpacked_per_cycle = device.host.dequantize_gbps / device.clock.ghz,
                  .scale64 = options.compat_scale64}),
      vector_unit_(device.array, options, ports_, board_),
      region_of_(innermost_regions(program)),
      regions_(program.regions.size() + 1),
      began_(std::chrono::steady_clock::now()) {
  for (std::size_t r = 0; r < program.regions.size(); ++r) regions_[r + 1].name = program.regions[r].name;
  const auto depth = static_cast<std::size_t>(options.queue);
  for (UnitQueue* queue :
       {&vector_queue_, &scalar_queue_, &matrix_queue_, &load_queues_[0], &load_queues_[1], &store_queue_})
    queue->starts.assign(depth, 0);
  if (options.repeat && options.issue == IssueMode::kOverlapped) periods_ = find_periods(program);
  for (AccumulatorTime& acc : accumulators_) acc.drained.assign(static_cast<std::size_t>(options.accumulators), 0);
}

TimingSimulator::~TimingSimulator() = default;

void TimingSimulator::on_issue(const IssueEvent& event) {
  region_ = region_of_[event.index];
  RegionTiming& here = region();
  if (region_ != last_region_) ++here.visits, last_region_ = region_;
  ++here.instructions;
  ++report_.instructions;
  fetch(event.index);
  ++report_.ops[static_cast<std::size_t>(event.instruction->op)].count;
  if (next_period_ < periods_.begins.size() && event.index == periods_.begins[next_period_]) period_begins();
  if (skipping_) {
    ++report_.skipped_instructions;
    return;
  }
  options_.issue == IssueMode::kSerial ? serial(event) : overlapped(event);
}

/// Instructions stream from memory into instruction SRAM, which keeps the latest: a jump back beyond it reads them
/// again. Their bytes and energy are counted; they are below 1 % of the bandwidth, and contention with other transfers
/// is not modelled.
void TimingSimulator::fetch(std::uint32_t index) {
  if (index + static_cast<std::uint64_t>(device_.sram.instruction_words) < fetched_) fetched_ = index;
  if (index < fetched_) return;
  report_.instruction_bytes += 4 * std::uint64_t{index + 1 - fetched_};
  fetched_ = index + 1;
}

TimingSnapshot TimingSimulator::snapshot() {
  for (const Engine engine : {Engine::kMatrix, Engine::kDrain, Engine::kVector, Engine::kScalar})
    accounts_.settle(engine);
  transfers_.settle();
  collect_transfers();
  TimingSnapshot now;
  for (std::size_t e = 0; e < kEngines; ++e) now.engines[e] = accounts_[static_cast<Engine>(e)];
  for (std::size_t op = 0; op < now.op_cycles.size(); ++op) now.op_cycles[op] = report_.ops[op].cycles;
  for (std::size_t p = 0; p < kPipes; ++p) now.pipes[p] = vector_unit_.pipe_busy(static_cast<Pipe>(p));
  now.chained = vector_unit_.chained();
  now.ports = ports_.taken();
  return now;
}

/// The middle periods are cut out of the simulated time: the last one follows the reference directly, with everything
/// that is in flight. finish() adds them to the report.
void TimingSimulator::period_begins() {
  const std::uint32_t period = next_period_++;
  if (skipping_) {
    skipping_ = period + 1 < periods_.begins.size();  // the last period is simulated
    return;
  }
  repeated_.add(period, snapshot());
  const dram::MemoryConfig& memory = memory_.config();
  const Cycle shortest = memory.refresh == dram::RefreshMode::kNone
                             ? 0
                             : kRefreshesPerPeriod * memory_.cycle_of(memory.standard.timing.refi);
  skipping_ =
      repeated_.settled(period, static_cast<std::uint32_t>(periods_.begins.size()), options_.tolerance, shortest);
}

/// One instruction at a time, with the published emulator's accounting.
void TimingSimulator::serial(const IssueEvent& event) {
  const Cost cost = latencies_.cost(event);
  Engine engine = Engine::kFrontEnd;
  Cycle cycles = cost.latency;
  Cycle* where = &report_.classes.control;
  switch (event.info->unit) {
    case Unit::kMatrix:
      engine = Engine::kMatrix;
      where = &report_.classes.matrix;
      break;
    case Unit::kVector:
      engine = Engine::kVector;
      where = &report_.classes.vector;
      break;
    case Unit::kScalarFp:
      engine = Engine::kScalar;
      where = &report_.classes.scalar;
      break;
    case Unit::kScalarInt:
      where = &report_.classes.scalar;
      break;
    case Unit::kLoad:
    case Unit::kStore: {
      engine = event.info->unit == Unit::kStore            ? Engine::kStore
               : event.instruction->op == Op::H_PREFETCH_M ? Engine::kLoadMatrix
                                                           : Engine::kLoadVector;
      std::uint64_t bytes = 0;
      cycles = transfers_.blocking(*event.accesses, now_, loads_packed(event), bytes) - now_;
      (engine == Engine::kStore ? region().write_bytes : region().read_bytes) += bytes;
      where = &report_.classes.memory;
      break;
    }
    case Unit::kControl:
      // Hardware loops take no issue slots: the published kernels have none, they are unrolled.
      if (event.instruction->op == Op::C_LOOP_START || event.instruction->op == Op::C_LOOP_END) cycles = 0;
      break;
  }
  if (event.info->latency == Latency::kMapFp) {
    const Cycle half = cycles / 2;
    report_.classes.hidden += half;
    *where += cycles - half;
  } else {
    *where += cycles;
  }
  settle_serial(engine, cycles);
  RegionTiming& here = region();
  here.cycles += cycles;
  here.busy[index_of(engine)] += cycles;
  here.macs += cost.macs;
  here.lane_ops += static_cast<double>(cost.lane_ops);
  if (here.first < 0) here.first = now_;
  here.last = now_ + cycles;
  report_.ops[static_cast<std::size_t>(event.instruction->op)].cycles += cycles;
  if (sink_ != nullptr)
    sink_->instruction({&event, engine, region_, now_, now_, now_ + cycles, now_ + cycles, cost.pipe});
  now_ += cycles;
}

/// All other engines wait for the one that works.
void TimingSimulator::settle_serial(Engine engine, Cycle cycles) {
  for (std::size_t e = 0; e < kEngines; ++e) {
    EngineTime& time = accounts_.time(static_cast<Engine>(e));
    time.settled += cycles;
    (e == index_of(engine) ? time.busy : time.stall[index_of(Cause::kSerial)]) += cycles;
  }
}

void TimingSimulator::executed(const ExecutedInstruction& instruction, Cycle busy) {
  RegionTiming& here = region();
  here.busy[index_of(instruction.engine)] += busy;
  here.last = std::max(here.last, instruction.done);
  last_done_ = std::max(last_done_, instruction.done);
  if (sink_ != nullptr) sink_->instruction(instruction);
}

void TimingSimulator::collect_transfers() {
  for (const FinishedTransfer& finished : transfers_.finished()) {
    RegionTiming& there = regions_[finished.request.region];
    there.busy[index_of(finished.request.engine)] += finished.busy;
    there.last = std::max(there.last, finished.done);
    (finished.request.engine == Engine::kStore ? there.write_bytes : there.read_bytes) += finished.bytes;
    last_done_ = std::max(last_done_, finished.done);
    if (sink_ != nullptr) sink_->transfer(finished);
  }
  transfers_.finished().clear();
}

TimingReport TimingSimulator::finish() {
  if (options_.issue == IssueMode::kSerial) {
    report_.total = now_;
    assert(report_.classes.sum() == now_);
  } else {
    last_done_ = std::max({last_done_, transfers_.finish(), accounts_[Engine::kFrontEnd].settled});
    for (const Engine engine : {Engine::kMatrix, Engine::kDrain, Engine::kVector, Engine::kScalar})
      last_done_ = std::max(last_done_, accounts_[engine].settled);
    collect_transfers();
    const Cycle issued = accounts_[Engine::kFrontEnd].settled;
    accounts_.finish(last_done_);
    report_.total = last_done_;
    regions_[region_].cycles += last_done_ - issued;
    regions_[region_].stall[index_of(Cause::kDrain)] += last_done_ - issued;
  }
  for (std::size_t e = 0; e < kEngines; ++e) report_.engines[e] = accounts_[static_cast<Engine>(e)];
  for (std::size_t p = 0; p < kPipes; ++p) report_.pipes[p] = vector_unit_.pipe_busy(static_cast<Pipe>(p));
  report_.chained_reads = vector_unit_.chained();
  report_.port_cycles = ports_.taken();
  const Cycle simulated = report_.total;
  repeated_.restore(periods_, regions_, report_);
  for (const EngineTime& engine : report_.engines) {
    assert(engine.total() == report_.total);
    (void)engine;
  }
  for (const RegionTiming& r : regions_) {
    report_.macs += r.macs;
    report_.lane_ops += r.lane_ops;
    report_.read_bytes += r.read_bytes;
    report_.write_bytes += r.write_bytes;
  }
  report_.regions = std::move(regions_);
  report_memory(simulated);
  report_energy();
  report_.host_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  return std::move(report_);
}

void TimingSimulator::report_memory(Cycle simulated) {
  memory_.advance(simulated);  // its breakdown covers the simulated time
  DramTiming& dram = report_.dram;
  const dram::DramStandard& standard = memory_.config().standard;
  for (int c = 0; c < memory_.config().channels; ++c)
    for (int p = 0; p < standard.pseudochannels; ++p) {
      const dram::PseudochannelStats stats = memory_.stats(c, p);
      const auto ns = [&](dram::Tick ticks) { return standard.ticks_to_ns(static_cast<double>(ticks)); };
      ++dram.pseudochannels;
      dram.data += ns(stats.time.data);
      dram.refresh += ns(stats.time.refresh);
      dram.turnaround += ns(stats.time.turnaround);
      dram.row += ns(stats.time.row);
      dram.column += ns(stats.time.column);
      dram.mode += ns(stats.time.mode);
      dram.idle += ns(stats.time.idle);
      dram.row_hits += stats.row_hits;
      dram.row_misses += stats.row_misses;
      dram.row_conflicts += stats.row_conflicts;
      dram.refreshes += stats.refreshes_all + stats.refreshes_bank;
      dram.joules += dram_energy(device_, stats);
    }
  dram.elapsed_ns = static_cast<double>(report_.total) / device_.clock.ghz;
}

void TimingSimulator::report_energy() {
  // Serial issue does not count accesses of vector SRAM; only loads write matrix SRAM.
  const bool serial = options_.issue == IssueMode::kSerial;
  const auto loads = report_.ops[static_cast<std::size_t>(Op::H_PREFETCH_M)].count;
  const Work work{.macs = report_.macs,
                  .matrix_cycles = static_cast<double>(report_.engines[index_of(Engine::kMatrix)].busy),
                  .lane_ops = report_.lane_ops,
                  .read_bytes = static_cast<double>(report_.read_bytes + report_.instruction_bytes),
                  .write_bytes = static_cast<double>(report_.write_bytes),
                  .instructions = static_cast<double>(report_.instructions),
                  .vector_rows = serial ? -1 : static_cast<double>(report_.port_cycles),
                  .matrix_bytes_written = loads > 0 ? static_cast<double>(report_.read_bytes) : 0};
  report_.energy = step_energy(device_, work, report_.seconds(device_));
  report_.joules = report_.energy.total();
}

Expected<TimingReport> simulate(const Device& device, const MachineConfig& config, const Program& program,
                                const TimingOptions& options, TraceSink* sink, std::uint64_t max_instructions) {
  DLLM_TRY(const std::unique_ptr<TimingSimulator> simulator, TimingSimulator::create(device, config, program, options));
  simulator->set_trace(sink);
  DLLM_TRY(Machine machine, Machine::create(config, Memories::kIntegers));
  RunOptions run;
  run.data = false;
  run.max_instructions = max_instructions;
  run.observer = simulator.get();
  if (const auto result = machine.run(program, run); !result) return result.error();
  return simulator->finish();
}

}  // namespace dllm::npu
