#include "npu_core/machine/machine.h"

#include <fmt/format.h>

#include <cassert>
#include <new>

#include "base/to_size.h"
#include "base/try.h"
#include "npu_core/machine/choice_source.h"
#include "npu_core/machine/semantics.h"

namespace dllm::npu {
namespace {

/// Traps a table entry without a function. Doing nothing would cost cycles and look right.
Trap no_function(Op op) {
  return {fmt::format("{} has no function in the machine", info(op).mnemonic),
          "src/npu_core/machine/semantics.h has them"};
}

}  // namespace

Expected<Machine> Machine::create(const MachineConfig& config, Memories memories) {
  DLLM_CHECK_OK(config.validate());
  try {
    return Machine(config, memories);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kResource, "the memories of the simulated device do not fit into the address space",
                 "npu machine", "raise the limit (ulimit -v), or simulate a device with smaller SRAM"};
  }
}

Expected<RunResult> Machine::run(const Program& program, const RunOptions& options) {
  RunResult result;
  ResolvedAccesses accesses;
  Trap trap;
  ChoiceSource choices(program.choices);
  state_.loops.clear();
  assert(memories_ == Memories::kAll || !options.data);
  for (std::uint32_t index = 0; index < program.size();) {
    const Instruction& instruction = program.code[index];
    const InstructionInfo& row = info(instruction.op);
    const auto stopped = [&] {
      return Error{ErrorCode::kInvalidFile, "trap: " + trap.what, program.where(index), trap.hint};
    };
    if (result.instructions == options.max_instructions) {
      trap = {fmt::format("the limit of {} instructions is reached", options.max_instructions),
              "does a loop never end? --max-instructions raises the limit"};
      return stopped();
    }
    if (!resolve(state_, instruction, row, accesses, trap)) return stopped();
    if (options.observer != nullptr)
      options.observer->on_issue({result.instructions, index, &instruction, &row, &accesses, &state_});
    Advance step{index + 1, false};
    const bool done = row.cls == Class::kControl ? control(program, instruction, index, step, trap)
                                                 : execute(instruction, row, accesses, options.data, trap);
    if (!options.data && instruction.op == Op::V_RED_MAX_IDX)
      if (const auto lane = choices.lane(index))
        state_.set_gp(instruction.get(Field::kRd), state_.gp[instruction.get(Field::kRs2)] + *lane);
    if (!done) return stopped();
    ++result.instructions;
    ++result.counts[static_cast<std::size_t>(instruction.op)];
    if (step.stop) {
      result.stopped_by_break = true;
      break;
    }
    index = step.next;
  }
  return result;
}

bool Machine::control(const Program& program, const Instruction& instruction, std::uint32_t index, Advance& step,
                      Trap& trap) {
  const std::uint32_t rd = instruction.get(Field::kRd);
  switch (instruction.op) {
    case Op::C_SET_ADDR_REG:
      state_.address[rd] =
          std::uint64_t{state_.gp[instruction.get(Field::kRs1)]} << 32 | state_.gp[instruction.get(Field::kRs2)];
      return true;
    case Op::C_SET_SCALE_REG:
      state_.scale_reg = state_.gp[rd];
      return true;
    case Op::C_SET_STRIDE_REG:
      state_.stride_reg = state_.gp[rd];
      return true;
    case Op::C_SET_V_MASK_REG:
      state_.v_mask = state_.gp[rd];
      return true;
    case Op::C_SET_CSR: {
      std::string fault = state_.set_control(static_cast<Csr>(instruction.get(Field::kImm18)), state_.gp[rd]);
      if (fault.empty()) return true;
      trap = {std::move(fault), ""};
      return false;
    }
    case Op::C_LOOP_START:
      if (state_.loops.size() == to_size(state_.config.loop_depth)) {
        trap = {fmt::format("{} loops are open, the hardware has no more", state_.loops.size()),
                "unroll one, or configure loop_depth"};
        return false;
      }
      state_.set_gp(rd, instruction.get(Field::kImm22));
      state_.loops.push_back({index, program.loop_partner[index], 0});
      return true;
    case Op::C_LOOP_END:
      if (state_.gp[rd] > 1) {
        state_.set_gp(rd, state_.gp[rd] - 1);
        step.next = program.loop_partner[index] + 1;
        ++state_.loops.back().trip;
      } else {
        state_.set_gp(rd, 0);
        state_.loops.pop_back();
      }
      return true;
    case Op::C_BREAK:
      step.stop = true;
      state_.loops.clear();
      return true;
    case Op::C_BNZ:
      if (branch(instruction, index, step))
        while (!state_.loops.empty() && (step.next <= state_.loops.back().start || step.next > state_.loops.back().end))
          state_.loops.pop_back();
      return true;
    case Op::C_FENCE:  // transfers complete when they are issued
      return true;
    default:
      trap = no_function(instruction.op);
      return false;
  }
}

bool Machine::branch(const Instruction& instruction, std::uint32_t index, Advance& step) const {
  if (state_.gp[instruction.get(Field::kRd)] == 0) return false;
  step.next = index + static_cast<std::uint32_t>(instruction.get_signed(Field::kImm18));
  return true;
}

bool Machine::execute(const Instruction& instruction, const InstructionInfo& row, const ResolvedAccesses& accesses,
                      bool data, Trap& trap) {
  const Execute function = semantics()[static_cast<std::size_t>(instruction.op)];
  if (function == nullptr) {
    trap = no_function(instruction.op);
    return false;
  }
  if (!data && row.unit != Unit::kScalarInt) return true;
  for (int i = 0; i < accesses.count; ++i)
    if (const MemoryRange& range = accesses[i]; range.space == Space::kHbm && range.runs() > 0)
      state_.reach_hbm(range.end());
  return function(state_, instruction, accesses, trap);
}

}  // namespace dllm::npu
