#include "test/coverage.h"

#include <algorithm>

namespace dllm::rtl {
namespace {

using npu::Access;
using npu::Extent;
using npu::Field;
using npu::Op;
using npu::Space;

constexpr const char* kCornerNames[] = {
    "no mask",    "partial mask",  "empty mask",       "in place",   "one row twice", "first row",     "last row",
    "NaN",        "infinity",      "subnormal",        "minus zero", "no elements",   "one element",   "several rows",
    "register 0", "sections of 1", "section of a row", "taken",      "not taken",     "leaves a loop", "in a loop"};

bool has_length(const npu::InstructionInfo& row) {
  return std::ranges::any_of(row.memory_list(), [](const npu::MemoryUse& use) {
    return use.extent == Extent::kLengthRs2 || use.extent == Extent::kLengthRs4;
  });
}
bool has_mask(const npu::InstructionInfo& row) {
  return std::ranges::any_of(row.operand_list(), [](const npu::Operand& one) { return one.name == "rmask"; });
}
/// Whether the instruction's result is a register that could be gp0 or f0.
bool writes_register(const npu::InstructionInfo& row) {
  return row.op != Op::C_LOOP_START && row.op != Op::C_LOOP_END && row.op != Op::C_SET_ADDR_REG &&
         std::ranges::any_of(row.operand_list(), [](const npu::Operand& one) {
           return one.field == Field::kRd && one.access != Access::kRead && one.access != Access::kNone;
         });
}
int rows_read(const npu::InstructionInfo& row) {
  return static_cast<int>(std::ranges::count_if(row.memory_list(), [](const npu::MemoryUse& use) {
    return use.space == Space::kVram && use.access == Access::kRead;
  }));
}
bool writes_a_row(const npu::InstructionInfo& row) {
  return std::ranges::any_of(row.memory_list(), [](const npu::MemoryUse& use) {
    return use.space == Space::kVram && use.access == Access::kWrite;
  });
}
bool has_sections(Op op) {
  return op == Op::V_RED_SUM_SEG || op == Op::V_RED_MAX_SEG || op == Op::V_SHFT_V || op == Op::C_HADAMARD_TRANSFORM;
}

}  // namespace

bool in_engine(Op op) {
  const npu::Class cls = npu::info(op).cls;
  return (cls == npu::Class::kVector || cls == npu::Class::kScalar || cls == npu::Class::kControl ||
          cls == npu::Class::kSampling) &&
         op != Op::V_RED_DRAW;
}

Coverage::Set Coverage::possible_of(Op op) {
  const npu::InstructionInfo& row = npu::info(op);
  Set set;
  const auto add = [&](std::initializer_list<Corner> list) {
    for (const Corner one : list) set.set(static_cast<std::size_t>(one));
  };
  if (!in_engine(op)) return set;
  if (has_mask(row)) add({Corner::kMaskOff, Corner::kMaskPartial, Corner::kMaskEmpty});
  if (rows_read(row) > 0) add({Corner::kNan, Corner::kInfinity, Corner::kSubnormal, Corner::kMinusZero});
  if (rows_read(row) > 0 && writes_a_row(row)) add({Corner::kInPlace});
  if (rows_read(row) > 1) add({Corner::kOneRowTwice});
  if (row.memory_count > 0) add({Corner::kFirstRow, Corner::kLastRow});
  if (has_length(row)) add({Corner::kNoElements, Corner::kOneElement});
  if (op == Op::V_SELECT_INT || op == Op::V_TOPK) add({Corner::kSeveralRows});
  if (writes_register(row)) add({Corner::kZeroRegister});
  if (has_sections(op)) add({Corner::kSectionOfOne, Corner::kSectionOfAll});
  if (op == Op::C_BNZ) add({Corner::kTaken, Corner::kNotTaken, Corner::kLeavesLoop});
  if (op == Op::C_LOOP_END) add({Corner::kTaken, Corner::kNotTaken});
  if (op != Op::C_BREAK && op != Op::C_SET_ADDR_REG && op != Op::C_SET_SCALE_REG && op != Op::C_SET_STRIDE_REG &&
      op != Op::C_SET_V_MASK_REG && op != Op::C_SET_CSR && op != Op::C_FENCE)
    add({Corner::kInLoop});
  return set;
}

void Coverage::count(const npu::IssueEvent& event) {
  const npu::Instruction& instruction = *event.instruction;
  const npu::InstructionInfo& row = *event.info;
  const npu::MachineState& state = *event.state;
  const npu::ResolvedAccesses& accesses = *event.accesses;
  Set& set = seen_[static_cast<std::size_t>(instruction.op)];
  const auto mark = [&](Corner one, bool condition = true) {
    if (condition) set.set(static_cast<std::size_t>(one));
  };
  if (has_mask(row)) {
    const bool masked = instruction.get(Field::kRs3) != 0;
    const int sections = state.config.vlen / state.config.hlen;
    const std::uint32_t all = sections >= 32 ? ~0u : (1u << sections) - 1, lanes = state.v_mask & all;
    mark(Corner::kMaskOff, !masked);
    mark(Corner::kMaskPartial, masked && lanes != 0 && lanes != all);
    mark(Corner::kMaskEmpty, masked && lanes == 0);
  }
  std::vector<std::uint64_t> sources;
  for (int i = 0; i < accesses.count; ++i) {
    const npu::MemoryRange& range = accesses[i];
    if (range.length == 0 || range.rows == 0) continue;
    mark(Corner::kFirstRow, range.base == 0);
    mark(Corner::kLastRow, range.end() == npu::space_size(state.config, range.space));
    if (range.space != Space::kVram) continue;
    if (range.access == Access::kWrite) {
      mark(Corner::kInPlace, std::ranges::find(sources, range.base) != sources.end());
      continue;
    }
    mark(Corner::kOneRowTwice, std::ranges::find(sources, range.base) != sources.end());
    sources.push_back(range.base);
    const auto seen = [&](Corner one) { return set.test(static_cast<std::size_t>(one)); };
    if (seen(Corner::kNan) && seen(Corner::kInfinity) && seen(Corner::kSubnormal) && seen(Corner::kMinusZero)) continue;
    for (std::uint64_t lane = 0; lane < range.rows * std::uint64_t{range.length}; ++lane) {
      const npu::Bf16 value = state.vram[range.base + lane];
      mark(Corner::kNan, (value & 0x7fff) > 0x7f80);
      mark(Corner::kInfinity, (value & 0x7fff) == 0x7f80);
      mark(Corner::kSubnormal, (value & 0x7f80) == 0 && (value & 0x7f) != 0);
      mark(Corner::kMinusZero, value == 0x8000);
    }
  }
  if (has_length(row) || instruction.op == Op::V_TOPK) {
    mark(Corner::kNoElements, accesses.elements == 0);
    mark(Corner::kOneElement, accesses.elements == 1);
    mark(Corner::kSeveralRows, accesses.elements > static_cast<std::uint32_t>(state.config.vlen));
  }
  mark(Corner::kZeroRegister, writes_register(row) && instruction.get(Field::kRd) == 0);
  if (has_sections(instruction.op)) {
    const std::uint32_t segment = state.control(npu::Csr::kSegmentLength);
    mark(Corner::kSectionOfOne, segment == 1);
    mark(Corner::kSectionOfAll, segment == static_cast<std::uint32_t>(state.config.vlen));
  }
  const std::uint32_t counter = state.gp[instruction.get(Field::kRd)];
  if (instruction.op == Op::C_LOOP_END) mark(counter > 1 ? Corner::kTaken : Corner::kNotTaken);
  if (instruction.op == Op::C_BNZ) {
    mark(counter != 0 ? Corner::kTaken : Corner::kNotTaken);
    const auto target = static_cast<std::int64_t>(event.index) + instruction.get_signed(Field::kImm18);
    mark(Corner::kLeavesLoop, counter != 0 && !state.loops.empty() && target > state.loops.back().end);
  }
  mark(Corner::kInLoop, !state.loops.empty());
}

std::size_t Coverage::possible() const {
  std::size_t sum = 0;
  for (std::size_t op = 0; op < seen_.size(); ++op) sum += possible_of(static_cast<Op>(op)).count();
  return sum;
}

std::size_t Coverage::covered() const {
  std::size_t sum = 0;
  for (std::size_t op = 0; op < seen_.size(); ++op) sum += (possible_of(static_cast<Op>(op)) & seen_[op]).count();
  return sum;
}

std::vector<std::string> Coverage::missing() const {
  std::vector<std::string> names;
  for (std::size_t op = 0; op < seen_.size(); ++op) {
    const Set open = possible_of(static_cast<Op>(op)) & ~seen_[op];
    for (std::size_t i = 0; i < kClasses; ++i)
      if (open.test(i)) names.push_back(std::string(npu::info(static_cast<Op>(op)).mnemonic) + ": " + kCornerNames[i]);
  }
  return names;
}

}  // namespace dllm::rtl
