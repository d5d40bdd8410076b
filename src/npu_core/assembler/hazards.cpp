#include "npu_core/assembler/hazards.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "npu_core/isa/csr.h"

namespace dllm::npu {
namespace {

bool reads(Access access) { return access == Access::kRead || access == Access::kReadWrite; }
bool writes(Access access) { return access == Access::kWrite || access == Access::kReadWrite; }

class Checker {
 public:
  explicit Checker(const Program& program) : program_(program) {}

  std::vector<Hazard> run() {
    for (std::uint32_t i = 0; i < program_.size(); ++i) {
      if (program_.code[i].op == Op::C_BNZ)
        targets_.insert(i + static_cast<std::uint32_t>(program_.code[i].get_signed(Field::kImm18)));
    }
    for (index_ = 0; index_ < program_.size(); ++index_) visit(program_.code[index_]);
    index_ = static_cast<std::uint32_t>(program_.size());
    for (int space = 0; space < kSpaceCount; ++space)
      if (filled_[static_cast<std::size_t>(space)] != 0)
        report(filled_[static_cast<std::size_t>(space)] - 1,
               fmt::format("the program ends without writing out what is in {}", name_of(static_cast<Space>(space))));
    for (std::size_t tag = 1; tag < pending_.size(); ++tag)
      if (pending_[tag] != 0) report(pending_[tag] - 1, fmt::format("no C_FENCE waits for tag {}", tag));
    return std::move(hazards_);
  }

 private:
  void report(std::uint32_t index, std::string what) { hazards_.push_back({index, std::move(what)}); }

  void visit(const Instruction& instruction) {
    const InstructionInfo& row = info(instruction.op);
    check_registers(instruction, row);
    check_accumulators(instruction, row);
    if (instruction.op == Op::C_LOOP_START) loops_.push_back(instruction.get(Field::kRd));
    if (instruction.op == Op::C_LOOP_END && !loops_.empty()) loops_.pop_back();
    if (row.cls == Class::kHbm && instruction.get(Field::kTag) != 0)
      pending_[instruction.get(Field::kTag)] = index_ + 1;
    if (instruction.op == Op::C_FENCE) {
      if (const std::uint32_t tag = instruction.get(Field::kTag); tag != 0)
        pending_[tag] = 0;
      else
        pending_.fill(0);
    }
    if (instruction.op == Op::S_LUI_INT && (instruction.get(Field::kImm22) >> 20) != 0)
      report(index_, "the upper two bits of the immediate are lost");
    if (instruction.op == Op::C_BREAK && loops_.empty() && index_ + 1 < program_.size() &&
        !targets_.contains(index_ + 1))
      report(index_ + 1, "nothing reaches this instruction: it follows C_BREAK");
  }

  void check_registers(const Instruction& instruction, const InstructionInfo& row) {
    // PLENA's reductions into f0 are documented no-operations; other writes to a zero register are mistakes.
    const bool reduction = instruction.op == Op::V_RED_SUM || instruction.op == Op::V_RED_MAX;
    for (const bool writing : {false, true})  // an instruction reads its operands before it writes
      for (const Operand& operand : row.operand_list()) {
        const std::uint32_t number = instruction.get(operand.field);
        if (!writing && reads(operand.access)) check_read(operand.kind, number);
        if (writing && writes(operand.access)) check_write(instruction, operand.kind, number, reduction);
      }
  }

  std::uint32_t* defined_registers(OperandKind kind) {
    return kind == OperandKind::kGp     ? &gp_
           : kind == OperandKind::kFp   ? &fp_
           : kind == OperandKind::kAddr ? &addr_
                                        : nullptr;
  }

  static const char* prefix(OperandKind kind) {
    return kind == OperandKind::kGp ? "gp" : kind == OperandKind::kFp ? "f" : "a";
  }

  void check_read(OperandKind kind, std::uint32_t number) {
    std::uint32_t* defined = defined_registers(kind);
    if (defined == nullptr || (*defined >> number & 1) != 0) return;
    report(index_, fmt::format("{}{} is read, but nothing has written it", prefix(kind), number));
    *defined |= 1u << number;
  }

  void check_write(const Instruction& instruction, OperandKind kind, std::uint32_t number, bool reduction) {
    std::uint32_t* defined = defined_registers(kind);
    if (defined == nullptr) return;
    if (number == 0 && kind != OperandKind::kAddr && !reduction)
      report(index_, fmt::format("{}0 is always 0: the result is lost", prefix(kind)));
    if (kind == OperandKind::kGp && instruction.op != Op::C_LOOP_END)
      for (const std::uint32_t counter : loops_)
        if (counter == number) report(index_, fmt::format("gp{} counts an open loop", number));
    *defined |= 1u << number;
  }

  void check_accumulators(const Instruction& instruction, const InstructionInfo& row) {
    if (instruction.op == Op::M_SUM) return;
    const bool write_out = row.latency == Latency::kWriteOut;
    for (const MemoryUse& use : row.memory_list()) {
      if (use.extent != Extent::kAccumulator) continue;
      std::uint32_t& filled = filled_[static_cast<std::size_t>(use.space)];
      if (write_out && filled == 0)
        report(index_, fmt::format("{} is written out, but nothing has filled it", name_of(use.space)));
      filled = write_out ? 0 : index_ + 1;
    }
    if (instruction.op != Op::C_SET_CSR) return;
    const auto csr = static_cast<Csr>(instruction.get(Field::kImm18));
    const bool shape = csr == Csr::kBmmRows || csr == Csr::kBmmCols, rows = csr == Csr::kMmRows;
    const bool format = csr == Csr::kFormatMatrixInput;
    for (const Space space : {Space::kAccMm, Space::kAccBmm, Space::kAccMv, Space::kAccBmv})
      if (filled_[static_cast<std::size_t>(space)] != 0 &&
          (format || (rows && space == Space::kAccMm) ||
           (shape && (space == Space::kAccBmm || space == Space::kAccBmv))))
        report(index_, fmt::format("{} changes while {} holds a partial sum",
                                   csr_table()[static_cast<std::size_t>(csr)].name, name_of(space)));
  }

  const Program& program_;
  std::vector<Hazard> hazards_;
  std::uint32_t index_ = 0;
  std::uint32_t gp_ = 1, fp_ = 1, addr_ = 0;            ///< written registers; gp0 and f0 always count
  std::array<std::uint32_t, kSpaceCount> filled_ = {};  ///< last instruction that accumulated, + 1
  std::array<std::uint32_t, 16> pending_ = {};          ///< last transfer of each tag, + 1
  std::vector<std::uint32_t> loops_;
  std::set<std::uint32_t> targets_;
};

}  // namespace

std::vector<Hazard> check_hazards(const Program& program) { return Checker(program).run(); }

}  // namespace dllm::npu
