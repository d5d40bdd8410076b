#pragma once

#include <array>
#include <cstdint>

#include "dllm/error.h"
#include "npu_core/assembler/program.h"
#include "npu_core/machine/resolve.h"
#include "npu_core/machine/state.h"

namespace dllm::npu {

/// One instruction about to execute, with everything that its timing depends on. Pointers are valid during the call.
struct IssueEvent {
  std::uint64_t sequence = 0;  ///< instructions issued before this one
  std::uint32_t index = 0;     ///< in the program
  const Instruction* instruction = nullptr;
  const InstructionInfo* info = nullptr;
  const ResolvedAccesses* accesses = nullptr;
  const MachineState* state = nullptr;  ///< before execution: registers, CSRs, open loops with their iteration numbers
};

/// Called for every instruction in program order. The machine executes it once, after the call.
class IssueObserver {
 public:
  virtual ~IssueObserver() = default;
  virtual void on_issue(const IssueEvent& event) = 0;
};

struct RunOptions {
  std::uint64_t max_instructions = std::uint64_t{1} << 36;  ///< longer programs are trapped
  /// false: only integer and control instructions execute; addresses are resolved and checked, data do not change. For
  /// timing, which depends on shapes and addresses. Of data-dependent results (V_RED_MAX_IDX, V_TOPK), only those at
  /// the sites of Program::choices are set, by its assumption. Must be false for a machine of Memories::kIntegers.
  bool data = true;
  IssueObserver* observer = nullptr;
};

struct RunResult {
  std::uint64_t instructions = 0;
  std::array<std::uint64_t, kOpCount> counts = {};  ///< by Op
  bool stopped_by_break = false;                    ///< else after the last instruction
};

/// The functional machine: bit-exact results in program order, without time. Deterministic; not thread-safe.
class Machine {
 public:
  /// Errors: MachineConfig::validate(); kResource if the memories do not fit into the address space.
  static Expected<Machine> create(const MachineConfig& config, Memories memories = Memories::kAll);

  MachineState& state() { return state_; }
  const MachineState& state() const { return state_; }

  /// Runs a linked program from its first instruction in the current state.
  /// Errors: kInvalidFile, a trap: address out of range or unaligned, value out of range of a CSR, and so on, with
  /// Program::where(). The state is then that before the trapped instruction.
  Expected<RunResult> run(const Program& program, const RunOptions& options = {});

 private:
  Machine(const MachineConfig& config, Memories memories) : state_(config, memories), memories_(memories) {}

  struct Advance {
    std::uint32_t next = 0;
    bool stop = false;
  };
  bool control(const Program& program, const Instruction& instruction, std::uint32_t index, Advance& step, Trap& trap);
  bool branch(const Instruction& instruction, std::uint32_t index, Advance& step) const;
  bool execute(const Instruction& instruction, const InstructionInfo& row, const ResolvedAccesses& accesses, bool data,
               Trap& trap);

  MachineState state_;
  Memories memories_;
};

}  // namespace dllm::npu
