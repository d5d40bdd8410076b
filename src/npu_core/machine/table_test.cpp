#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>

#include "npu_core/machine/semantics.h"
#include "npu_core/machine/testing/lab.h"

// Runs every entry of the instruction table on the machine: each has a function, which changes exactly what the entry
// says. An instruction without a function would otherwise cost its cycles and do nothing.

namespace dllm::npu {
namespace {

using test::Lab;
using Names = std::set<std::string>;

/// All architectural state, by name.
std::map<std::string, std::vector<std::int64_t>> snapshot(const MachineState& state) {
  std::map<std::string, std::vector<std::int64_t>> all;
  const auto array = [](const auto& memory, std::size_t n) {
    std::vector<std::int64_t> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<std::int64_t>(memory[i]);
    return values;
  };
  const auto accumulator = [](const Accumulator& acc) {
    std::vector<std::int64_t> values(acc.value);
    values.push_back(static_cast<std::int64_t>(acc.mode));
    values.push_back(static_cast<std::int64_t>(acc.terms));
    for (std::size_t i = 0; i < acc.rows * acc.cols; ++i) values.push_back(std::bit_cast<std::int32_t>(acc.f32(i)));
    return values;
  };
  for (std::size_t i = 0; i < kGpRegisters; ++i) all["gp" + std::to_string(i)] = {state.gp[i]};
  for (std::size_t i = 0; i < kFpRegisters; ++i)
    all["f" + std::to_string(i)] = {std::bit_cast<std::int64_t>(state.fp_accumulator[i])};
  for (std::size_t i = 0; i < kAddressRegisters; ++i)
    all["a" + std::to_string(i)] = {static_cast<std::int64_t>(state.address[i])};
  all["SCALE_REG"] = {state.scale_reg};
  all["STRIDE_REG"] = {state.stride_reg};
  all["V_MASK"] = {state.v_mask};
  all["CSR"] = array(state.csr, kCsrCount);
  all["VRAM"] = array(state.vram, state.vram.size());
  all["MRAM"] = array(state.mram.values, state.mram.values.size());
  all["FP_MEM"] = array(state.fp_mem, state.fp_mem.size());
  all["INT_MEM"] = array(state.int_mem, state.int_mem.size());
  all["HBM"] = array(state.hbm, 8192);
  all["acc"] = accumulator(state.acc_mm);
  all["acc_heads"] = accumulator(state.acc_bmm);
  all["accrow"] = accumulator(state.acc_mv);
  all["accrows"] = accumulator(state.acc_bmv);
  return all;
}

bool writes(Access access) { return access == Access::kWrite || access == Access::kReadWrite; }

/// What the instruction changes according to its entry.
Names promised(const InstructionInfo& row, const Instruction& instruction) {
  Names names;
  for (const Operand& operand : row.operand_list()) {
    const char* bank = operand.kind == OperandKind::kGp ? "gp" : operand.kind == OperandKind::kFp ? "f" : "a";
    if (writes(operand.access)) names.insert(bank + std::to_string(instruction.get(operand.field)));
  }
  for (const MemoryUse& use : row.memory_list())
    if (writes(use.access)) names.insert(std::string(name_of(use.space)));
  if (instruction.op == Op::C_SET_CSR) return {"CSR"};
  if ((row.control_writes & kUsesScaleReg) != 0) names.insert("SCALE_REG");
  if ((row.control_writes & kUsesStrideReg) != 0) names.insert("STRIDE_REG");
  if ((row.control_writes & kUsesMask) != 0) names.insert("V_MASK");
  return names;
}

class TableWalk : public testing::Test {
 protected:
  Lab lab_{Lab::small()};

  /// Memories full of values that no instruction would produce by accident, and a value in each accumulator.
  void SetUp() override {
    MachineState& state = lab_.state();
    const std::vector<float> values = test::normals(state.vram.size(), 3);
    lab_.set_row(0, values);
    for (std::size_t i = 0; i < state.fp_mem.size(); ++i) state.fp_mem[i] = f32_to_bf16(values[i] * 3.0f);
    for (std::uint32_t i = 0; i < state.int_mem.size(); ++i) state.int_mem[i] = 70000 + i;
    state.scale_reg = lab_.put_tensor(0, state.config.weight, test::normals(512, 4));
    lab_.put_tensor(2048, state.config.weight, test::normals(512, 5));
    lab_.run(
        "H_PREFETCH_M gp0, gp0, a0, 0, 0\nM_MM 0, gp0, gp0\nM_BMM 0, gp0, gp0\nM_MV 0, gp0, gp0\n"
        "M_BMV gp0, gp0, gp0\n");
    state.address[7] = 2048;
    for (std::uint32_t i = 1; i < kFpRegisters; ++i) state.fp_accumulator[i] = -7.0 - i;  // below any key of a draw
  }

  /// A value for a register that the entry reads: an address in its memory, a length, or any number.
  std::uint32_t value_for(const InstructionInfo& row, const Operand& operand, std::uint32_t place) const {
    for (const MemoryUse& use : row.memory_list()) {
      const bool named = (operand.field == Field::kRd && (use.base == Base::kRd || use.base == Base::kRdImm)) ||
                         (operand.field == Field::kRs1 && (use.base == Base::kRs1 || use.base == Base::kRs1Imm)) ||
                         (operand.field == Field::kRs2 && use.base == Base::kRs2) ||
                         (operand.field == Field::kRs3 && use.base == Base::kRs3);
      if (named && use.space == Space::kVram) return 1024 * place;
      if (named && use.space == Space::kMram) return use.access == Access::kRead ? 0 : 1024;
      if (named) return 32 * place;
      if (use.base == Base::kRs1Rd || (use.base == Base::kHbmRs2Rs1 && operand.field == Field::kRs1)) return 0;
      if (use.extent == Extent::kLengthRs2 && operand.field == Field::kRs2) return 8;
      if (use.extent == Extent::kLengthRs4 && operand.field == Field::kFunct) return 8;
    }
    if (row.cls == Class::kScalar || row.cls == Class::kControl) return 1000 + place;
    return 3;  // lanes of a shift, k of a top-k, rows between rows
  }

  Instruction prepared(const InstructionInfo& row) {
    Instruction instruction{.op = row.op};
    for (std::uint32_t place = 1; const Operand& operand : row.operand_list()) {
      if (operand.kind == OperandKind::kAddr) instruction.set(operand.field, writes(operand.access) ? 1 : 7);
      if (operand.kind == OperandKind::kGp || operand.kind == OperandKind::kFp) instruction.set(operand.field, place);
      if (operand.kind == OperandKind::kGp) lab_.state().gp[place] = value_for(row, operand, place);
      if (operand.kind == OperandKind::kUint && operand.limit > 15) instruction.set(operand.field, 5);
      if (operand.kind == OperandKind::kBf16) instruction.set(operand.field, 0x4040);
      ++place;
    }
    if (row.memory_count != 0)  // literals of addresses: aligned
      for (const Field field : {Field::kImm13, Field::kImm17, Field::kImm18}) instruction.set(field, 0);
    if (row.op == Op::C_SET_CSR) {
      instruction.set(Field::kImm18, static_cast<std::uint32_t>(Csr::kSegmentLength));
      lab_.state().gp[1] = 16;
    }
    return instruction;
  }
};

TEST_F(TableWalk, EachRowChangesWhatItSaysAndNothingElse) {
  std::size_t walked = 0;
  for (const InstructionInfo& row : instruction_table()) {
    if ((row.control_writes & (kBranches | kWaits)) != 0) continue;  // FlowHasAnEffect
    SCOPED_TRACE(std::string(row.mnemonic) + " (" + std::to_string(static_cast<int>(row.op)) + ")");
    Lab fresh(Lab::small());
    std::swap(lab_, fresh);
    SetUp();
    Program program;
    program.code.push_back(prepared(row));
    ASSERT_TRUE(link(program).has_value());
    const auto before = snapshot(lab_.state());
    const auto result = lab_.machine().run(program);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    Names changed;
    for (const auto& [name, values] : snapshot(lab_.state()))
      if (values != before.at(name)) changed.insert(name);
    // The adder tree's flush is the only instruction that affects nothing but time.
    EXPECT_EQ(changed, row.op == Op::M_SUM ? Names{} : promised(row, program.code[0])) << to_text(program.code[0]);
    ++walked;
  }
  EXPECT_EQ(walked + 5, instruction_table().size());
}

TEST_F(TableWalk, FlowHasAnEffect) {
  EXPECT_EQ(lab_.run("C_LOOP_START gp1, 3\nS_ADDI_INT gp2, gp2, 1\nC_LOOP_END gp1").instructions, 7u);
  EXPECT_EQ(lab_.state().gp[2], 3u);
  EXPECT_TRUE(lab_.run("C_BREAK\nS_ADDI_INT gp3, gp0, 1").stopped_by_break);
  EXPECT_EQ(lab_.run("li gp4, 1\nC_BNZ gp4, 2\nS_ADDI_INT gp3, gp0, 1").instructions, 2u);
  EXPECT_EQ(lab_.state().gp[3], 0u);
  EXPECT_EQ(lab_.run("C_FENCE").instructions, 1u);
}

TEST_F(TableWalk, EveryFunctionIsListedOnce) {
  std::map<Op, int> listed;
  for (const std::span<const Semantics> list :
       {matrix_semantics(), vector_semantics(), reduction_semantics(), permutation_semantics(), selection_semantics(),
        scalar_semantics(), transfer_semantics()})
    for (const Semantics& one : list) ++listed[one.op];
  for (const InstructionInfo& row : instruction_table())
    EXPECT_EQ(listed[row.op], row.cls == Class::kControl ? 0 : 1) << row.mnemonic;
}

}  // namespace
}  // namespace dllm::npu
