#include "test/issue.h"

#include <Vissue_wide.h>
#include <fmt/format.h>
#if __has_include(<Vissue_narrow.h>)
#include <Vissue_narrow.h>
#else
#define Vissue_narrow Vissue_wide  // it is not among issue_shapes() then
#endif
#if __has_include(<Vissue_ports.h>)
#include <Vissue_ports.h>
#else
#define Vissue_ports Vissue_wide
#endif

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "npu_core/assembler/assembler.h"
#include "npu_core/isa/encoding.h"
#include "npu_core/timing/simulator.h"
#include "test/checked.h"
#include "test/engine.h"
#include "test/issue_writer.h"
#include "test/random_start.h"

namespace dllm::rtl {
namespace {

constexpr std::size_t kTransfers = 2;  // in flight per DMA engine
constexpr std::size_t kCellWords = (EngineShape::kRows + 4 + 16 + 32 + 31) / 32;
constexpr std::size_t kRegisters = 5;  // rd, rs1, rs2, rs3, funct: fields of four bits above the opcode

/// An instruction as the front end meets it, and the simulator's times.
struct Issued {
  std::uint32_t index = 0, word = 0;
  npu::Op op = npu::Op::C_BREAK;
  npu::Engine engine = npu::Engine::kFrontEnd;
  std::array<std::uint32_t, kRegisters> registers = {};
  std::array<std::uint32_t, npu::kCsrCount> csr = {};
  bool taken = false;
  std::int64_t dispatched = 0, start = 0, done = 0;
  // Of transfers: the DMA engine (0 matrix loads, 1 vector loads, 2 stores; -1: none), the cell that a load fills, and
  // bytes of elements and scales.
  int dma = -1;
  std::size_t cell = 0;
  std::array<std::uint64_t, 2> low = {}, high = {};
};

/// Records the instructions in program order.
class Recorder final : public npu::IssueObserver, public npu::TraceSink {
 public:
  explicit Recorder(npu::TimingSimulator& timing) : timing_(timing) { timing_.set_trace(this); }
  void on_issue(const npu::IssueEvent& event) override {
    Issued& one = all.emplace_back();
    one.index = event.index;
    one.op = event.instruction->op;
    one.word = *npu::encode(*event.instruction);
    const npu::MachineState& state = *event.state;
    for (std::size_t i = 0; i < kRegisters; ++i) one.registers[i] = state.gp[one.word >> (6 + 4 * i) & 15];
    std::copy_n(state.csr.begin(), one.csr.size(), one.csr.begin());
    const std::uint32_t counter = one.registers[0];
    one.taken = one.op == npu::Op::C_LOOP_END ? counter > 1 : one.op == npu::Op::C_BNZ && counter != 0;
    note_transfer(event, one);
    timing_.on_issue(event);
  }
  void instruction(const npu::ExecutedInstruction& executed) override {
    Issued& one = all.back();
    one.engine = executed.engine;
    one.dispatched = executed.dispatched;
    if (one.dma >= 0) return;  // when it starts and is done is known later
    one.start = executed.start;
    one.done = executed.done;
  }
  /// Those of an engine are done in order.
  void transfer(const npu::FinishedTransfer& finished) override {
    const std::size_t dma = npu::index_of(finished.request.engine) - npu::index_of(npu::Engine::kLoadMatrix);
    Issued& one = all[transfers[dma][finished_[dma]++]];
    one.start = finished.request.start;
    one.done = finished.done;
  }

  std::vector<Issued> all;
  std::array<std::vector<std::size_t>, 3> transfers;  ///< [engine] indices into `all`

 private:
  void note_transfer(const npu::IssueEvent& event, Issued& one) {
    if (event.info->unit != npu::Unit::kLoad && event.info->unit != npu::Unit::kStore) return;
    one.dma = one.op == npu::Op::H_PREFETCH_M ? 0 : one.op == npu::Op::H_PREFETCH_V ? 1 : 2;
    transfers[static_cast<std::size_t>(one.dma)].push_back(all.size() - 1);
    const npu::MachineConfig& config = event.state->config;
    std::size_t stream = 0;
    for (int i = 0; i < event.accesses->count; ++i) {
      const npu::MemoryRange& range = (*event.accesses)[i];
      const auto mlen = static_cast<std::uint64_t>(config.mlen);
      if (range.space == npu::Space::kVram) one.cell = range.base / static_cast<std::uint64_t>(config.vlen);
      if (range.space == npu::Space::kMram) one.cell = EngineShape::kRows + range.base / (mlen * mlen);
      if (range.space != npu::Space::kHbm) continue;
      one.low[stream] = range.base;
      one.high[stream++] = range.end();
    }
  }

  std::array<std::size_t, 3> finished_ = {};
  npu::TimingSimulator& timing_;
};

npu::MachineConfig issue_config() {
  constexpr std::uint64_t kTiles = 4;
  npu::MachineConfig config = engine_config(8);
  config.mram_elements = kTiles * static_cast<std::uint64_t>(config.mlen) * static_cast<std::uint64_t>(config.mlen);
  config.noise = true;
  return config;
}

template <std::size_t kWords, class Port>
void put(Port& port, std::size_t at, const std::array<std::uint32_t, kWords>& words) {
  for (std::size_t i = 0; i < kWords; ++i) port[at * kWords + i] = words[i];
}

/// Feeds the instructions to a model, and compares.
template <class Model>
class IssueBench {
 public:
  IssueBench(const npu::Program& program, const Recorder& recorded, int width)
      : program_(program),
        all_(recorded.all),
        transfers_(recorded.transfers),
        width_(static_cast<std::size_t>(width)),
        in_entry_(kEntries),
        waits_(kEntries),
        told_(all_.size()),
        apart_(all_.size()) {
    model_->clk_i = 0;
    model_->valid_i = 0;
    model_->rst_ni = 0;
    model_->eval();  // the first one sees no edge
    tick();
    model_->rst_ni = 1;
  }
  void run(IssueResult& result) {
    constexpr std::int64_t kPatience = 4000;  // cycles without a dispatch
    std::size_t started = 0;
    std::int64_t quiet = 0;
    for (std::int64_t now = 0; started < all_.size() && quiet < kPatience; ++now) {
      feed();
      memory(now);
      model_->eval();
      std::vector<std::pair<std::size_t, std::size_t>> entered;  // entry, index in all_
      const std::size_t taken = accept(now, started, entered, result);
      quiet = taken > 0 ? 0 : quiet + 1;
      // An instruction may take the place of one that starts in the same cycle: that one is meant.
      for (const auto& [entry, at] : entered)
        if (!waits_[entry]) in_entry_[entry] = at, waits_[entry] = true;
      started += units(now, result);
      for (const auto& [entry, at] : entered)
        if (in_entry_[entry] != at) in_entry_[entry] = at, waits_[entry] = true;
      next_ += taken;
      tick();
    }
    if (started != all_.size())
      differs(result, next_ < all_.size() ? next_ : all_.size() - 1, "nothing is dispatched any more");
  }

 private:
  static constexpr std::size_t kEntries = 96;  // six queues of at most 16

  void tick() {
    model_->clk_i = 1;
    model_->eval();
    model_->clk_i = 0;
    model_->eval();
  }
  void feed() {
    unsigned valid = 0, taken = 0;
    std::uint64_t words = 0;
    for (std::size_t s = 0; s < width_ && next_ + s < all_.size(); ++s) {
      const Issued& one = all_[next_ + s];
      valid |= 1u << s;
      taken |= (one.taken ? 1u : 0u) << s;
      words |= std::uint64_t{one.word} << (32 * s);
      put(model_->registers_i, s, one.registers);
      put(model_->csr_i, s, one.csr);
    }
    for (std::size_t s = 0; s < width_ && next_ + s < all_.size(); ++s)
      for (std::size_t m = 0; m < 2; ++m) {
        const Issued& one = all_[next_ + s];
        const auto halves = [](std::uint64_t value) {
          return std::array{static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32)};
        };
        put(model_->low_i, 2 * s + m, halves(one.low[m]));
        put(model_->high_i, 2 * s + m, halves(one.high[m]));
      }
    model_->valid_i = static_cast<std::uint8_t>(valid);
    model_->taken_i = static_cast<std::uint8_t>(taken);
    model_->word_i = static_cast<std::remove_cvref_t<decltype(model_->word_i)>>(words);
  }
  /// What the DMA engines tell: the memory has the simulator's times.
  void memory(std::int64_t now) {
    for (std::size_t i = 0; i < kCellWords; ++i) model_->landed_i[i] = 0;
    unsigned finished = 0, arriving = 0;
    for (std::size_t dma = 0; dma < transfers_.size(); ++dma) {
      const std::vector<std::size_t>& all = transfers_[dma];
      while (dispatched_[dma] < all.size() && all[dispatched_[dma]] < next_) ++dispatched_[dma];
      // Those of an engine may overtake each other.
      for (std::size_t n = dispatched_[dma] - std::min(dispatched_[dma], kTransfers); n < dispatched_[dma]; ++n) {
        const Issued& one = all_[all[n]];
        if (dma == 1 && one.done == now + 1) ++arriving;
        if (one.done > now || told_[all[n]]) continue;
        told_[all[n]] = true;
        finished |= 1u << (kTransfers * dma + n % kTransfers);
        if (dma < 2) model_->landed_i[one.cell / 32] |= 1u << (one.cell % 32);
      }
    }
    model_->finished_i = static_cast<std::uint8_t>(finished);
    model_->arriving_i = static_cast<std::uint8_t>(arriving);
  }
  /// Dispatches of this cycle; counts in `started` those that the front end executes.
  std::size_t accept(std::int64_t now, std::size_t& started, std::vector<std::pair<std::size_t, std::size_t>>& entered,
                     IssueResult& result) {
    std::size_t taken = 0;
    for (; taken < width_ && (model_->take_o >> taken & 1) != 0; ++taken) {
      const std::size_t at = next_ + taken;
      if (now != all_[at].dispatched) differs(result, at, fmt::format("dispatched at {}", now));
      if (all_[at].engine == npu::Engine::kFrontEnd && all_[at].dma < 0) {
        ++started;
        result.cycles = std::max(result.cycles, now + 1);
        continue;
      }
      const std::size_t bits = entry_bits();
      entered.emplace_back(std::size_t{model_->entry_o} >> (bits * taken) & ((1u << bits) - 1), at);
    }
    if (taken > 1) ++result.together;
    return taken;
  }
  std::size_t units(std::int64_t now, IssueResult& result) {
    std::size_t count = 0, vectors = 0;
    for (std::size_t e = 0; e < entries(); ++e) {
      if (!bit(model_->started_o, e)) continue;
      const std::size_t at = in_entry_[e];
      waits_[e] = false;
      const Issued& want = all_[at];
      const std::int64_t start = now + time(model_->start_o, e), done = now + time(model_->done_o, e);
      const bool store = want.dma == 2;  // it starts, for the simulator, when its rows have been read
      if ((store ? done : start) != want.start || (done != want.done && want.dma < 0))
        differs(result, at, fmt::format("from {} to {}", start, done));
      ++count;
      if (want.engine == npu::Engine::kVector) ++vectors;
      if (bit(model_->chained_o, e)) ++result.chained;
      if (want.dma >= 0) ++result.transfers;
      result.cycles = std::max(result.cycles, want.dma < 0 ? done : want.done);
    }
    if (vectors > 1) ++result.starts_together;
    return count;
  }
  std::size_t entries() const { return width_ == 1 ? 24 : kEntries; }
  std::size_t entry_bits() const { return width_ == 1 ? 5 : 7; }
  static bool bit(const auto& port, std::size_t e) {
    if constexpr (requires { port[0]; })
      return (port[e / 32] >> (e % 32) & 1) != 0;
    else
      return (port >> e & 1) != 0;
  }
  /// Twelve bits per entry.
  static std::int64_t time(const auto& port, std::size_t e) {
    const std::size_t bit = 12 * e, word = bit / 32, shift = bit % 32;
    std::uint64_t two = port[word];
    if (shift > 20) two |= std::uint64_t{port[word + 1]} << 32;
    return static_cast<std::int64_t>(two >> shift & 0xfff);
  }
  void differs(IssueResult& result, std::size_t at, const std::string& what) {
    if (apart_[at]) return;
    apart_[at] = true;
    const Issued& want = all_[at];
    if (result.apart == 0)
      result.first = fmt::format("{}: {} is {}, not dispatched at {}, from {} to {}", program_.where(want.index),
                                 npu::info(want.op).mnemonic, what, want.dispatched, want.start, want.done);
    ++result.apart;
  }

  const npu::Program& program_;
  const std::vector<Issued>& all_;
  const std::array<std::vector<std::size_t>, 3>& transfers_;
  std::size_t width_, next_ = 0;
  std::array<std::size_t, 3> dispatched_ = {};  // [engine] transfers
  std::vector<std::size_t> in_entry_;
  std::vector<bool> waits_;  // [entry] has not started
  std::vector<bool> told_;   // [instruction] a transfer that is done
  std::vector<bool> apart_;  // [instruction] differs in one of its times
  std::unique_ptr<Model> model_ = with_random_start<Model>();
};

npu::TimingOptions options_of(IssueShape shape) {
  npu::TimingOptions options;
  if (shape == IssueShape::kNarrow) {
    options.width = options.vector_starts = options.accumulators = 1;
    options.queue = 4;
    options.chaining = false;
  }
  return options;
}

IssueResult run_issue(IssueShape shape, const std::string& text, std::uint64_t seed) {
  const npu::Program program = checked(npu::assemble(text, {.file = "issue"}));
  const npu::MachineConfig config = issue_config();
  const npu::Device device = issue_device(shape == IssueShape::kPorts ? "2" : "7");
  const npu::TimingOptions options = options_of(shape);
  IssueResult result;
  result.programs = 1;
  const auto run = [&](const npu::TimingOptions& how, bool record) {
    npu::Machine machine = checked(npu::Machine::create(config));
    Vectors random(seed);
    fill_issue(machine.state(), random);
    const auto timing = checked(npu::TimingSimulator::create(device, config, program, how));
    Recorder recorder(*timing);
    npu::RunOptions settings;
    settings.observer = &recorder;
    checked(machine.run(program, settings));
    const std::int64_t total = timing->finish().total;
    if (record) {
      result.instructions = recorder.all.size();
      for (const Issued& one : recorder.all) result.executed.set(static_cast<std::size_t>(one.op));
      if (shape == IssueShape::kWide)
        IssueBench<Vissue_wide>(program, recorder, how.width).run(result);
      else if (shape == IssueShape::kNarrow)
        IssueBench<Vissue_narrow>(program, recorder, how.width).run(result);
      else
        IssueBench<Vissue_ports>(program, recorder, how.width).run(result);
    }
    return total;
  };
  result.expected = run(options, true);
  npu::TimingOptions serial = options;
  serial.issue = npu::IssueMode::kSerial;
  result.serial = run(serial, false);
  if (result.apart > 0) ++result.programs_apart;
  return result;
}

}  // namespace

std::vector<IssueShape> issue_shapes() {
  std::vector<IssueShape> shapes = {IssueShape::kWide};
#ifndef Vissue_narrow
  shapes.push_back(IssueShape::kNarrow);
#endif
#ifndef Vissue_ports
  shapes.push_back(IssueShape::kPorts);
#endif
  return shapes;
}

std::string_view name_of(IssueShape shape) {
  constexpr std::string_view kNames[] = {"Wide", "Narrow", "Ports"};
  return kNames[static_cast<std::size_t>(shape)];
}

void IssueResult::add(const IssueResult& other) {
  instructions += other.instructions;
  programs += other.programs;
  if (first.empty()) first = other.first;
  apart += other.apart;
  programs_apart += other.programs_apart;
  chained += other.chained;
  transfers += other.transfers;
  together += other.together;
  starts_together += other.starts_together;
  cycles += other.cycles;
  expected += other.expected;
  serial += other.serial;
  executed |= other.executed;
}

IssueResult check_issue(IssueShape shape, std::uint64_t instructions, std::uint64_t seed) {
  Vectors random(seed);
  IssueResult total;
  while (total.instructions < instructions)
    total.add(run_issue(shape, issue_program(random, issue_config()), random.bits()));
  return total;
}

}  // namespace dllm::rtl
