// Scalar instructions. Reference: PLENA ISA (0x17-0x27); S_LI_FP and S_MV_FP are extensions.

#include "npu_core/isa/table_builder.h"

namespace dllm::npu {
namespace {

constexpr Row fp(Op op, std::string_view name, std::uint8_t opcode, Latency latency = Latency::kScalarFp) {
  return row(op, name, opcode, Class::kScalar, Unit::kScalarFp, latency);
}

constexpr Row integer(Op op, std::string_view name, std::uint8_t opcode) {
  return row(op, name, opcode, Class::kScalar, Unit::kScalarInt, Latency::kScalarInt);
}

constexpr Row fp3(Row base) {
  return base.with({fp_out("rd", Field::kRd), fp_in("rs1", Field::kRs1), fp_in("rs2", Field::kRs2)});
}
constexpr Row fp2(Row base) { return base.with({fp_out("rd", Field::kRd), fp_in("rs1", Field::kRs1)}); }
constexpr Row int3(Row base) {
  return base.with({gp_out("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)});
}

constexpr Operand kBf16Immediate{"imm", Field::kImm16, OperandKind::kBf16, Access::kNone, 0xffff};

constexpr Row kScalarRows[] = {
    fp3(fp(Op::S_ADD_FP, "S_ADD_FP", 0x17)).doc("f[rd] <- f[rs1] + f[rs2]"),
    fp3(fp(Op::S_SUB_FP, "S_SUB_FP", 0x18)).doc("f[rd] <- f[rs1] - f[rs2]"),
    fp3(fp(Op::S_MAX_FP, "S_MAX_FP", 0x19)).doc("f[rd] <- max(f[rs1], f[rs2])"),
    fp3(fp(Op::S_MUL_FP, "S_MUL_FP", 0x1A)).doc("f[rd] <- f[rs1] * f[rs2]"),
    fp2(fp(Op::S_EXP_FP, "S_EXP_FP", 0x1B, Latency::kScalarExp))
        .doc("f[rd] <- exp(f[rs1])", "The argument is clamped to [-88, 88]; the result is correctly rounded."),
    fp2(fp(Op::S_RECI_FP, "S_RECI_FP", 0x1C, Latency::kScalarReci)).doc("f[rd] <- 1 / f[rs1]"),
    fp2(fp(Op::S_SQRT_FP, "S_SQRT_FP", 0x1D, Latency::kScalarSqrt)).doc("f[rd] <- square root of f[rs1]"),
    fp(Op::S_LD_FP, "S_LD_FP", 0x1E)
        .with({fp_out("rd", Field::kRd), gp_in("rs1", Field::kRs1), imm18()})
        .touches({load(Space::kFpMem, Base::kRs1Imm, Extent::kWord)})
        .doc("f[rd] <- FP_MEM[gp[rs1] + imm]"),
    fp(Op::S_ST_FP, "S_ST_FP", 0x1F)
        .with({fp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), imm18()})
        .touches({store(Space::kFpMem, Base::kRs1Imm, Extent::kWord)})
        .doc("FP_MEM[gp[rs1] + imm] <- f[rd]", "One of DART's six sampling instructions."),
    row(Op::S_MAP_V_FP, "S_MAP_V_FP", 0x20, Class::kScalar, Unit::kScalarFp, Latency::kMapFp)
        .variant(31, 1, 0)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), uint("imm", Field::kImm17, (1u << 17) - 1)})
        .touches({load(Space::kFpMem, Base::kRs1Imm, Extent::kWindow), store(Space::kVram, Base::kRd, Extent::kRow)})
        .doc("VRAM[gp[rd]] <- FP_MEM[gp[rs1] + imm .. + VLEN)",
             "One of DART's six sampling instructions. Bit 31 selects the form with a length, so imm has 17 bits."),
    row(Op::S_MAP_V_FP_LEN, "S_MAP_V_FP", 0x20, Class::kScalar, Unit::kScalarFp, Latency::kMapFp)
        .variant(31, 1, 1)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2),
               optional(uint("imm", Field::kImm13, (1u << 13) - 1))})
        .touches({load(Space::kFpMem, Base::kRs1Imm, Extent::kLengthRs2), store(Space::kVram, Base::kRd, Extent::kRow)})
        .doc("VRAM[gp[rd]] <- FP_MEM[gp[rs1] + imm .. + gp[rs2]), other lanes of the row 0",
             "Extension: a register as third or fourth operand selects this form. gp[rs2] <= VLEN.")
        .also_ordered({0, 1, 3, 2}),
    int3(integer(Op::S_ADD_INT, "S_ADD_INT", 0x21)).doc("gp[rd] <- gp[rs1] + gp[rs2], modulo 2^32"),
    integer(Op::S_ADDI_INT, "S_ADDI_INT", 0x22)
        .with({gp_out("rd", Field::kRd), gp_in("rs1", Field::kRs1), imm18()})
        .doc("gp[rd] <- gp[rs1] + imm, modulo 2^32", "imm is unsigned: -1 does not fit."),
    int3(integer(Op::S_SUB_INT, "S_SUB_INT", 0x23)).doc("gp[rd] <- gp[rs1] - gp[rs2], modulo 2^32"),
    int3(integer(Op::S_MUL_INT, "S_MUL_INT", 0x24)).doc("gp[rd] <- gp[rs1] * gp[rs2], modulo 2^32"),
    integer(Op::S_LUI_INT, "S_LUI_INT", 0x25)
        .with({gp_out("rd", Field::kRd), imm22()})
        .doc("gp[rd] <- imm << 12, modulo 2^32", "The upper two bits of imm are lost."),
    integer(Op::S_LD_INT, "S_LD_INT", 0x26)
        .with({gp_out("rd", Field::kRd), gp_in("rs1", Field::kRs1), imm18()})
        .touches({load(Space::kIntMem, Base::kRs1Imm, Extent::kWord)})
        .doc("gp[rd] <- INT_MEM[gp[rs1] + imm]"),
    integer(Op::S_ST_INT, "S_ST_INT", 0x27)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), imm18()})
        .touches({store(Space::kIntMem, Base::kRs1Imm, Extent::kWord)})
        .doc("INT_MEM[gp[rs1] + imm] <- gp[rd]", "One of DART's six sampling instructions."),
    fp(Op::S_LI_FP, "S_LI_FP", 0x3B)
        .variant(30, 2, 0)
        .with({fp_out("rd", Field::kRd), kBf16Immediate})
        .doc("f[rd] <- imm, a BF16 value",
             "Written as a number, inf, -inf, nan, or its 16 bits 0x.... A device with FP16 lanes reads the bits as "
             "FP16."),
    fp2(fp(Op::S_MV_FP, "S_MV_FP", 0x3B)).variant(30, 2, 1).doc("f[rd] <- f[rs1]"),
};

}  // namespace

std::span<const Row> scalar_rows() { return kScalarRows; }

}  // namespace dllm::npu
