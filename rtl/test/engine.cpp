#include "test/engine.h"

#include <Vengine8.h>
#include <Vengine8d.h>
#include <fmt/format.h>
#ifndef DLLM_RTL_SMALL
#include <Vengine64.h>
#endif

#include <bit>
#include <memory>

#include "npu_core/isa/encoding.h"
#include "npu_core/machine/semantics.h"
#include "test/board.h"

namespace dllm::rtl {
namespace {

#ifdef DLLM_RTL_SMALL
using Vengine64 = Vengine8;  // too few lanes: its tests fail
#endif
using npu::Bf16;
using npu::Field;

bool is_loop(npu::Op op) { return op == npu::Op::C_LOOP_START || op == npu::Op::C_LOOP_END; }

/// Accesses of vector SRAM by the instruction table. V_TOPK goes through its rows one by one.
int rows_of(npu::Op op, npu::Access access) {
  int count = 0;
  for (const npu::MemoryUse& use : npu::info(op).memory_list())
    count += use.space == npu::Space::kVram && use.access == access ? 1 : 0;
  return count;
}
bool reads_two_rows(npu::Op op) { return rows_of(op, npu::Access::kRead) == 2; }
bool writes_row(npu::Op op) { return rows_of(op, npu::Access::kWrite) == 1; }

/// Hands instructions to the cycle simulator, and counts what they cover.
class Watch final : public npu::IssueObserver {
 public:
  Watch(npu::IssueObserver& timing, Coverage* coverage) : timing_(timing), coverage_(coverage) {}
  void on_issue(const npu::IssueEvent& event) override {
    if (coverage_ != nullptr) coverage_->count(event);
    timing_.on_issue(event);
  }

 private:
  npu::IssueObserver& timing_;
  Coverage* coverage_;
};

/// Rows of a transfer as requested by the engine's descriptor.
class MemorySide {
 public:
  explicit MemorySide(npu::Machine& machine) : state_(machine.state()) {}

  template <class Model>
  void request(const Model& model, std::int64_t cycles) {
    constexpr std::uint32_t kTarget = 1, kOffset = 2, kBase = 3;
    state_.reset_registers();
    state_.address[kBase] = model.dma_address_o;
    state_.gp[kOffset] = model.dma_offset_o;
    state_.scale_reg = model.dma_scales_o;
    state_.stride_reg = model.dma_stride_o;
    for (std::size_t i = 0; i < state_.csr.size(); ++i) state_.csr[i] = model.csr_o[i];  // formats among them
    state_.csr[static_cast<std::size_t>(npu::Csr::kPrefetchVRows)] = rows_ = model.dma_rows_o;
    npu::Instruction instruction;
    instruction.op = npu::Op::H_PREFETCH_V;
    instruction.set(Field::kRd, kTarget);
    instruction.set(Field::kRs1, kOffset);
    instruction.set(Field::kRs2, kBase);
    instruction.set(Field::kRs3, model.dma_mode_o & 1u);
    instruction.set(Field::kFunct, model.dma_mode_o >> 1);
    npu::ResolvedAccesses accesses;
    npu::Trap trap;
    if (npu::resolve(state_, instruction, npu::info(instruction.op), accesses, trap))
      npu::semantics()[static_cast<std::size_t>(instruction.op)](state_, instruction, accesses, trap);
    target_ = model.dma_target_o;
    // Rows arrive one per cycle, and the last one ends the transfer.
    left_ = std::max<std::int64_t>(cycles, rows_);
  }
  template <class Model>
  void cycle(Model& model) {
    model.dma_write_i = left_ > 0 && left_ <= rows_;
    model.dma_done_i = left_ == 1;
    if (model.dma_write_i) {
      const auto row = static_cast<std::uint32_t>(rows_ - left_);
      const auto lanes = static_cast<std::size_t>(state_.config.vlen);
      model.dma_row_i = static_cast<std::uint16_t>(target_ + row);
      const Bf16* values = state_.vram.data() + row * lanes;
      for (std::size_t i = 0; i < lanes; i += 2)
        model.dma_data_i[i / 2] = std::uint32_t{values[i + 1]} << 16 | values[i];
    }
    if (left_ > 0) --left_;
  }

 private:
  npu::MachineState& state_;
  std::int64_t left_ = 0;
  std::uint32_t rows_ = 0, target_ = 0;
};

void differs(EngineResult& result, std::string what) {
  if (result.wrong++ == 0) result.first = std::move(what);
}

template <class Model>
void compare(Board<Model>& board, const npu::MachineState& state, EngineResult& result) {
  for (std::size_t i = 0; i < 16; ++i)
    if ((*board).gp_o[i] != state.gp[i])
      differs(result, fmt::format("gp{} is {:#x}, not {:#x}", i, (*board).gp_o[i], state.gp[i]));
  for (std::size_t i = 0; i < 8; ++i)
    if (const auto want = std::bit_cast<std::uint32_t>(static_cast<float>(state.fp_accumulator[i]));
        (*board).fp_o[i] != want)
      differs(result, fmt::format("f{} is {:#x}, not {:#x}", i, (*board).fp_o[i], want));
  const auto word = [&](const char* name, std::size_t i, std::uint32_t found, std::uint32_t want) {
    if (found != want) differs(result, fmt::format("{}{} is {:#x}, not {:#x}", name, i, found, want));
  };
  for (std::size_t i = 0; i < state.csr.size(); ++i) word("control register ", i, (*board).csr_o[i], state.csr[i]);
  for (std::size_t i = 0; i < 8; ++i) {
    word("lower half of a", i, (*board).addresses_o[2 * i], static_cast<std::uint32_t>(state.address[i]));
    word("upper half of a", i, (*board).addresses_o[2 * i + 1], static_cast<std::uint32_t>(state.address[i] >> 32));
  }
  word("scales ", 0, (*board).dma_scales_o, state.scale_reg);
  word("stride ", 0, (*board).dma_stride_o, state.stride_reg);
  word("mask ", 0, (*board).mask_o, state.v_mask);
  const auto lanes = static_cast<std::size_t>(state.config.vlen);
  for (std::uint32_t row = 0; row < EngineShape::kRows; ++row) {
    const auto& data = board.read(0, row);
    for (std::size_t i = 0; i < lanes; ++i) {
      const auto found = static_cast<Bf16>(data[i / 2] >> (i % 2 * 16));
      if (const Bf16 want = state.vram[row * lanes + i]; found != want)
        differs(result, fmt::format("row {} lane {} is {:04x}, not {:04x}", row, i, found, want));
    }
  }
  for (std::uint32_t i = 0; i < EngineShape::kFpWords; ++i)
    if (const std::uint32_t found = board.read(1, i)[0]; found != state.fp_mem[i])
      differs(result, fmt::format("FP_MEM[{}] is {:04x}, not {:04x}", i, found, state.fp_mem[i]));
  for (std::uint32_t i = 0; i < EngineShape::kIntWords; ++i)
    if (const std::uint32_t found = board.read(2, i)[0]; found != state.int_mem[i])
      differs(result, fmt::format("INT_MEM[{}] is {:#x}, not {:#x}", i, found, state.int_mem[i]));
}

/// Runs the loaded program and compares the time of each instruction: from its first cycle to that of the next.
template <class Model>
void execute(Board<Model>& board, MemorySide& memory, const npu::Program& program, const Trace& trace,
             EngineResult& result) {
  Model& model = *board;
  const bool traps = result.expected_trap.code != TrapCode::kNone;
  bool trapped = false;  // the instruction that is expected to trap has been issued
  std::size_t at = 0;    // index in the trace of the executing instruction
  const auto skip_loops = [&] {
    while (at < trace.entries.size() && is_loop(trace.entries[at].op)) ++at;
  };
  skip_loops();
  std::int64_t began = -1, limit = 1000 + 4 * result.expected;
  bool started = false;
  std::uint32_t rows = 0;  // of a transfer
  const auto ended = [&] {
    if (!started) return;
    std::size_t next = at + 1;
    while (next < trace.entries.size() && is_loop(trace.entries[next].op)) ++next;
    const std::int64_t took = result.cycles - began, loops = static_cast<std::int64_t>(next - at - 1);
    std::int64_t want = trace.entries[at].cycles;
    if (trace.entries[at].op == npu::Op::H_PREFETCH_V && rows > want) {
      result.transfers_longer += rows - static_cast<std::uint64_t>(want);
      want = rows;
    }
    if (took == want) return;
    if (took > want && took <= want + loops)
      result.loops_alone += static_cast<std::uint64_t>(took - want);
    else if (took == want + 1 && next < trace.entries.size() && writes_row(trace.entries[at].op) &&
             reads_two_rows(trace.entries[next].op))
      ++result.port_waits;
    else if (result.units_apart++ == 0 && result.first.empty())
      result.first = fmt::format("{}: {} cycles, not {}", program.where(trace.entries[at].index), took, want);
  };
  model.length_i = static_cast<std::uint16_t>(program.size());
  model.start_i = 1;
  board.tick();
  model.start_i = 0;
  for (model.eval(); model.running_o && result.cycles < limit; ++result.cycles) {
    if (model.issue_o) {
      ended();
      if (started) ++at, skip_loops();
      if (at == trace.entries.size() && traps && !trapped && model.pc_o == result.expected_trap.index) {
        trapped = true;
        board.tick();
        model.eval();
        continue;
      }
      if (at >= trace.entries.size() || model.pc_o != trace.entries[at].index) {
        differs(result, fmt::format("instruction {} executes out of order", model.pc_o));
        return;
      }
      began = result.cycles;
      started = true;
      if (model.dma_request_o) {
        rows = model.dma_rows_o;
        memory.request(model, trace.entries[at].cycles);
      }
    }
    memory.cycle(model);
    board.tick();
    model.eval();
  }
  if (!traps) ended();
  if (model.running_o) differs(result, "the engine does not stop");
  result.trap = model.trap_o;
  if (const int want = static_cast<int>(result.expected_trap.code); result.trap != want)
    differs(result, fmt::format("trap {}, not {}", result.trap, want));
  std::size_t left = trapped || trace.entries.empty() ? at : at + 1;
  while (left < trace.entries.size() && is_loop(trace.entries[left].op)) ++left;
  if (left != trace.entries.size()) differs(result, "the engine stops early");
}

template <class Model>
EngineResult run_on(npu::Machine& machine, npu::Machine& memory, const npu::Device& device, const npu::Program& program,
                    const RunSettings& settings) {
  EngineResult result;
  const auto board = std::make_unique<Board<Model>>();
  board->open_waves(settings.waves);
  board->load(machine.state(), program);
  for (std::size_t i = 0; i < machine.state().csr.size(); ++i) (**board).csr_reset_i[i] = machine.state().csr[i];

  npu::TimingOptions options;
  options.issue = npu::IssueMode::kSerial;
  const auto timing = npu::TimingSimulator::create(device, machine.state().config, program, options);
  if (!timing) {
    differs(result, timing.error().message());
    return result;
  }
  Trace trace;
  (*timing)->set_trace(&trace);
  npu::RunOptions run;
  Watch watch(**timing, settings.coverage);
  run.observer = &watch;
  const auto ran = machine.run(program, run);
  if (!ran) {
    const auto trap = machine_trap(ran.error());
    if (!trap || !settings.may_trap) {
      differs(result, ran.error().message());
      return result;
    }
    result.expected_trap = *trap;
    if (trap->was_issued) trace.entries.pop_back();
  }
  result.instructions = trace.entries.size();
  result.expected = (*timing)->finish().total;
  MemorySide side(memory);
  execute(*board, side, program, trace, result);
  compare(*board, machine.state(), result);
  return result;
}

}  // namespace

void EngineResult::add(const EngineResult& other) {
  instructions += other.instructions;
  if (first.empty()) first = other.first;
  wrong += other.wrong;
  cycles += other.cycles;
  expected += other.expected;
  units_apart += other.units_apart;
  loops_alone += other.loops_alone;
  port_waits += other.port_waits;
  transfers_longer += other.transfers_longer;
  if (trap == 0) trap = other.trap;
}

EngineResult run_engine(npu::Machine& machine, npu::Machine& memory, const npu::Device& device,
                        const npu::Program& program, const RunSettings& settings) {
  if (machine.state().config.noise) return run_on<Vengine8d>(machine, memory, device, program, settings);
  return machine.state().config.vlen == 8 ? run_on<Vengine8>(machine, memory, device, program, settings)
                                          : run_on<Vengine64>(machine, memory, device, program, settings);
}

Halt run_words(const std::vector<std::uint32_t>& words) {
  constexpr int kLimit = 1000;  // cycles
  Board<Vengine8> board;
  const npu::MachineState reset(engine_config(8));
  for (std::size_t i = 0; i < reset.csr.size(); ++i) (*board).csr_reset_i[i] = reset.csr[i];
  for (std::uint32_t i = 0; i < words.size(); ++i) board.write(3, i, [&](auto& data) { data[0] = words[i]; });
  (*board).length_i = static_cast<std::uint16_t>(words.size());
  (*board).start_i = 1;
  board.tick();
  (*board).start_i = 0;
  (*board).eval();
  for (int cycle = 0; (*board).running_o && cycle < kLimit; ++cycle) {
    board.tick();
    (*board).eval();
  }
  return {(*board).running_o ? -1 : (*board).trap_o, (*board).gp_o[1]};
}

}  // namespace dllm::rtl
