#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "npu_core/device/device.h"
#include "npu_core/timing/latency.h"
#include "test/board.h"
#include "test/core.h"
#include "test/trap_codes.h"

namespace dllm::rtl {

inline Part part_of(npu::Op op) {
  switch (op) {
    case npu::Op::M_MM:
    case npu::Op::M_TMM:
    case npu::Op::M_MV:
    case npu::Op::M_TMV:
    case npu::Op::M_BMM:
    case npu::Op::M_BTMM:
    case npu::Op::M_BMV:
    case npu::Op::M_BTMV:
      return Part::kProduct;
    case npu::Op::M_MM_WO:
    case npu::Op::M_MV_WO:
    case npu::Op::M_BMM_WO:
    case npu::Op::M_BMV_WO:
      return Part::kWriteOut;
    case npu::Op::H_PREFETCH_M:
    case npu::Op::H_PREFETCH_V:
    case npu::Op::H_STORE_V:
      return Part::kTransfer;
    case npu::Op::C_LOOP_START:
    case npu::Op::C_LOOP_END:
      return Part::kLoop;
    default:
      return Part::kElsewhere;
  }
}

inline bool reads_two_rows(npu::Op op) {
  return std::ranges::count_if(npu::info(op).memory_list(), [](const npu::MemoryUse& use) {
           return use.space == npu::Space::kVram && use.access == npu::Access::kRead;
         }) == 2;
}

/// What the simulator says about each instruction: its time under serial issue, and the drain of write-outs, which
/// serial issue does not count.
class CoreTrace final : public npu::TraceSink {
 public:
  struct Entry {
    std::uint32_t index = 0;
    npu::Op op = npu::Op::C_BREAK;
    std::int64_t cycles = 0, drain = 0;
    std::int64_t simulated = 0;  ///< by the simulator itself
  };
  CoreTrace(const npu::Device& device, const npu::MachineConfig& machine)
      : table_(device.array, device.latency, machine, options_) {}

  void instruction(const npu::ExecutedInstruction& executed) override {
    const npu::IssueEvent& event = *executed.event;
    Entry entry{event.index, event.instruction->op, executed.done - executed.start, 0, executed.done - executed.start};
    if (part_of(entry.op) == Part::kWriteOut) entry.drain = table_.drain(event);
    // The simulator lets M_BMV read the matrix a row per cycle; the core does it by tiles, as M_BTMV.
    if (entry.op == npu::Op::M_BMV) entry.cycles = event.state->control(npu::Csr::kBmmCols);
    entries.push_back(entry);
  }
  void transfer(const npu::FinishedTransfer&) override {}
  std::int64_t fill() const { return table_.fill(); }
  std::vector<Entry> entries;

 private:
  npu::TimingOptions options_;
  npu::LatencyTable table_;
};

inline void differs(CoreResult& result, std::string what) {
  if (result.wrong++ == 0) result.first = std::move(what);
}

template <class Model>
void compare_registers(Model& model, const npu::MachineState& state, CoreResult& result) {
  for (std::size_t i = 0; i < 16; ++i)
    if (model.gp_o[i] != state.gp[i])
      differs(result, fmt::format("gp{} is {:#x}, not {:#x}", i, model.gp_o[i], state.gp[i]));
  const auto word = [&](const char* name, std::size_t i, std::uint32_t found, std::uint32_t want) {
    if (found != want) differs(result, fmt::format("{}{} is {:#x}, not {:#x}", name, i, found, want));
  };
  for (std::size_t i = 0; i < 8; ++i)
    word("f", i, model.fp_o[i], std::bit_cast<std::uint32_t>(static_cast<float>(state.fp_accumulator[i])));
  for (std::size_t i = 0; i < state.csr.size(); ++i) word("control register ", i, model.csr_o[i], state.csr[i]);
  for (std::size_t i = 0; i < 8; ++i) {
    word("lower half of a", i, model.addresses_o[2 * i], static_cast<std::uint32_t>(state.address[i]));
    word("upper half of a", i, model.addresses_o[2 * i + 1], static_cast<std::uint32_t>(state.address[i] >> 32));
  }
  word("scales ", 0, model.scales_o, state.scale_reg);
  word("stride ", 0, model.stride_o, state.stride_reg);
  word("mask ", 0, model.mask_o, state.v_mask);
}

/// Control registers as the machine has them when a program starts, and how far memory reaches.
template <class Model>
void set_inputs(Model& model, const npu::MachineState& state) {
  for (std::size_t i = 0; i < state.csr.size(); ++i) model.csr_reset_i[i] = state.csr[i];
  model.memory_bytes_i = state.config.hbm_bytes;
}

template <class Model>
void compare_memories(Board<Model>& board, const npu::MachineState& state, const npu::MachineState& memory,
                      CoreResult& result) {
  const auto lanes = static_cast<std::size_t>(state.config.vlen);
  for (std::uint32_t row = 0; row < EngineShape::kRows; ++row) {
    const auto& data = board.read(0, row);
    for (std::size_t i = 0; i < lanes; ++i) {
      const auto found = static_cast<npu::Bf16>(data[i / 2] >> (i % 2 * 16));
      const npu::Bf16 want = state.vram[row * lanes + i];
      if (found != want) differs(result, fmt::format("row {} lane {} is {:04x}, not {:04x}", row, i, found, want));
      if ((want & 0x7fffu) != 0 && (want & 0x7f80u) != 0x7f80u) ++result.values;
    }
  }
  for (std::uint64_t at = kTensors; at < kTensors + kRegion; ++at)
    if (state.hbm[at] != memory.hbm[at])
      differs(result, fmt::format("byte {:#x} of memory is {:02x}, not {:02x}", at - kTensors,
                                  static_cast<unsigned>(memory.hbm[at]), static_cast<unsigned>(state.hbm[at])));
}

/// The times of instructions: a product occupies the array for the simulator's time. Its results are in the
/// accumulators `latency` cycles after its last operands, which is the simulator's fill and what the operands' buffers
/// take; a write-out waits for them, then takes the simulator's drain.
class Times {
 public:
  Times(const CoreTrace& trace, const npu::Program& program, int blen)
      : trace_(trace), program_(program), latency_(trace.fill() + blen + 4) {}

  void ended(std::size_t at, std::size_t next, std::int64_t began, std::int64_t now, CoreResult& result) {
    const CoreTrace::Entry& entry = trace_.entries[at];
    const std::int64_t took = now - began;
    std::int64_t want = entry.cycles;
    for (std::size_t i = at; i < next; ++i) {
      PartCycles& part = result.parts[static_cast<std::size_t>(part_of(trace_.entries[i].op))];
      ++part.instructions;
      part.simulator += trace_.entries[i].simulated;
      if (i == at) part.core += took;
    }
    switch (part_of(entry.op)) {
      case Part::kProduct:
        ++result.products;
        ready_ = began + want - 1 + latency_;
        break;
      case Part::kWriteOut:
        ++result.write_outs;
        result.fills += std::max<std::int64_t>(0, ready_ - began - 1);
        want = std::max(began + 1, ready_) + entry.drain - began + 1;
        break;
      case Part::kTransfer:
        ++result.transfers;
        return;  // as long as memory takes
      default:
        break;
    }
    // Loop instructions that are fetched alone, and a second row that waits for the port: EngineResult explains both.
    const auto loops = static_cast<std::int64_t>(next - at - 1);
    const bool port = next < trace_.entries.size() && reads_two_rows(trace_.entries[next].op);
    result.loops_alone += took - want;
    if (took >= want && took <= want + loops + (port ? 1 : 0)) return;
    if (result.times_apart++ == 0 && result.first.empty())
      result.first = fmt::format("{}: {} cycles, not {}", program_.where(entry.index), took, want);
  }

 private:
  const CoreTrace& trace_;
  const npu::Program& program_;
  std::int64_t latency_, ready_ = 0;
};

/// What a core is expected to do with a program.
struct ExpectedRun {
  const CoreTrace& trace;
  int blen;
  std::optional<std::uint32_t> trap_at{};  ///< the instruction that must trap instead of executing
  std::int64_t most_cycles = 4'000'000;
};

template <class Model>
void execute(Board<Model>& board, MemoryModel& memory, const npu::Program& program, const ExpectedRun& expected,
             CoreResult& result) {
  Model& model = *board;
  const CoreTrace& trace = expected.trace;
  const std::optional<std::uint32_t> trap_at = expected.trap_at;
  Times times(trace, program, expected.blen);
  const auto skip_loops = [&](std::size_t at) {
    while (at < trace.entries.size() && part_of(trace.entries[at].op) == Part::kLoop) ++at;
    return at;
  };
  std::size_t at = 0;
  std::int64_t began = -1;
  bool trapped = false;
  model.length_i = static_cast<std::uint16_t>(program.size());
  model.start_i = 1;
  board.tick();
  model.start_i = 0;
  for (;; ++result.cycles) {
    memory.drive(model);
    model.eval();
    if (!model.running_o || result.cycles == expected.most_cycles) break;
    if (model.issue_o) {
      const std::size_t next = skip_loops(began < 0 ? 0 : at + 1);
      if (began >= 0) times.ended(at, next, began, result.cycles, result);
      at = next;
      if (trapped) return differs(result, "the core goes on after a trap");
      trapped = trap_at && at == trace.entries.size() && model.pc_o == *trap_at;
      if (!trapped && (at >= trace.entries.size() || model.pc_o != trace.entries[at].index))
        return differs(result, fmt::format("instruction {} executes out of order", model.pc_o));
      began = result.cycles;
    }
    memory.sample(model);
    board.tick();
  }
  if (began >= 0 && !trapped) times.ended(at, skip_loops(at + 1), began, result.cycles, result);
  if (model.running_o) differs(result, fmt::format("{} does not end", program.where(model.pc_o)));
  result.trap = model.trap_o;
  if ((result.trap != 0) != trap_at.has_value())
    differs(result, fmt::format("trap {} at {}", result.trap, program.where(model.pc_o)));
  if ((trapped ? at : skip_loops(at + 1)) != trace.entries.size()) differs(result, "the core stops early");
}

template <class Model>
CoreResult run_core(npu::Machine& machine, npu::Machine& memory, const npu::Program& program, MemoryTiming timing,
                    bool may_trap) {
  CoreResult result;
  const npu::MachineConfig& config = machine.state().config;
  npu::Device device = engine_device(config.noise ? "1" : "0");
  device.array.blen = config.blen;
  device.array.mlen = config.mlen;
  device.array.vlen = config.vlen;
  device.array.hlen = config.hlen;
  device.derive_array_and_clock();
  const auto board = std::make_unique<Board<Model>>();
  board->load(machine.state(), program);
  set_inputs(**board, machine.state());

  npu::TimingOptions options;
  options.issue = npu::IssueMode::kSerial;
  const auto timing_simulator = npu::TimingSimulator::create(device, config, program, options);
  if (!timing_simulator) {
    differs(result, timing_simulator.error().message());
    return result;
  }
  CoreTrace trace(device, config);
  (*timing_simulator)->set_trace(&trace);
  npu::RunOptions run;
  run.observer = timing_simulator->get();
  const auto ran = machine.run(program, run);
  const auto trap = ran ? std::nullopt : machine_trap(ran.error());
  if (!ran && (!may_trap || !trap)) {
    differs(result, ran.error().message());
    return result;
  }
  std::optional<std::uint32_t> trap_at;
  if (trap) {
    result.machine_traps = true;
    trap_at = trap->index;
    // Instructions that find out late have been issued in the machine. Programs that trap have no loops before that.
    if (!trace.entries.empty() && trace.entries.back().index == *trap_at) trace.entries.pop_back();
  }
  result.instructions = trace.entries.size();
  for (const CoreTrace::Entry& entry : trace.entries) result.executed.set(static_cast<std::size_t>(entry.op));
  auto dram = dram_port(device, timing);
  if (!dram) {
    differs(result, dram.error().message());
    return result;
  }
  MemoryModel model(memory, timing, 5, std::move(*dram));
  execute(*board, model, program, {trace, config.blen, trap_at}, result);
  compare_registers(**board, machine.state(), result);
  compare_memories(*board, machine.state(), memory.state(), result);
  return result;
}

}  // namespace dllm::rtl
