// HBM transfers and control. Reference: PLENA ISA (0x28-0x30, 0x34); tags, C_BNZ, C_FENCE and C_SET_CSR are extensions.

#include "npu_core/isa/table_builder.h"

namespace dllm::npu {
namespace {

constexpr Row transfer(Op op, std::string_view name, std::uint8_t opcode, Unit unit) {
  return row(op, name, opcode, Class::kHbm, unit, Latency::kHbm)
      .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), addr_in("rs2", Field::kRs2),
             uint("rstride", Field::kRs3, 1), uint("prec", Field::kFunct, 1), optional(uint("tag", Field::kTag, 15))})
      .reads(kUsesScaleReg | kUsesStrideReg | kUsesFormats | kUsesAmounts);
}

constexpr Row control(Op op, std::string_view name, std::uint8_t opcode) {
  return row(op, name, opcode, Class::kControl, Unit::kControl, Latency::kControl);
}

constexpr Operand kOffset{"offset", Field::kImm18, OperandKind::kSint, Access::kNone, (1u << 18) - 1};
constexpr Operand kCsrNumber{"csr", Field::kImm18, OperandKind::kCsr, Access::kNone, (1u << 18) - 1};
constexpr unsigned kAllCsrs = kUsesBmmScale | kUsesBmmShape | kUsesFormats | kUsesAmounts | kUsesSegment | kUsesRouter;

constexpr Row kControlRows[] = {
    transfer(Op::H_PREFETCH_M, "H_PREFETCH_M", 0x28, Unit::kLoad)
        .touches({load(Space::kHbm, Base::kHbmRs2Rs1, Extent::kHbmMatrix),
                  store(Space::kMram, Base::kRd, Extent::kPrefetchRows)})
        .doc(
            "MRAM[gp[rd]] <- prefetch_m_rows rows of MLEN elements from HBM, address a[rs2], element offset gp[rs1]",
            "prec 0: weights, 1: KV. rstride 1: rows STRIDE_REG elements apart in HBM, 0: MLEN. Elements and scales "
            "are two streams; the scales start SCALE_REG bytes after a[rs2]. With format_weight q4_0 or q8_0, rows are "
            "in tiles of BLEN rows (32 x 32 on phones): the codes of a tile and then its FP16 scales, so that neither "
            "SCALE_REG nor rstride applies, and offset and prefetch_m_rows are whole tiles. The vector unit looks the "
            "codes up (value times scale, rounded to FP16), and the rows in MRAM are FP16. A tag groups transfers for "
            "C_FENCE."),
    transfer(Op::H_PREFETCH_V, "H_PREFETCH_V", 0x29, Unit::kLoad)
        .touches({load(Space::kHbm, Base::kHbmRs2Rs1, Extent::kHbmVector),
                  store(Space::kVram, Base::kRd, Extent::kPrefetchRows)})
        .doc("VRAM[gp[rd]] <- prefetch_v_rows rows of VLEN elements from HBM, converted to BF16 (FP16)",
             "prec 0: activations, 1: KV. rstride 1: rows STRIDE_REG elements apart in HBM, 0: VLEN."),
    transfer(Op::H_STORE_V, "H_STORE_V", 0x2A, Unit::kStore)
        .touches({load(Space::kVram, Base::kRd, Extent::kStoreRows),
                  store(Space::kHbm, Base::kHbmRs2Rs1, Extent::kHbmStore)})
        .doc("HBM <- store_v_rows rows of VRAM[gp[rd]], converted from BF16 (FP16); addresses as in H_PREFETCH_V"),
    control(Op::C_SET_ADDR_REG, "C_SET_ADDR_REG", 0x2B)
        .with({addr_out("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .doc("a[rd] <- {gp[rs1], gp[rs2]}: high and low 32 bits of a byte address"),
    control(Op::C_SET_SCALE_REG, "C_SET_SCALE_REG", 0x2C)
        .with({gp_in("rd", Field::kRd)})
        .writes(kUsesScaleReg)
        .doc("SCALE_REG <- gp[rd]: bytes from a tensor's base to its scales"),
    control(Op::C_SET_STRIDE_REG, "C_SET_STRIDE_REG", 0x2D)
        .with({gp_in("rd", Field::kRd)})
        .writes(kUsesStrideReg)
        .doc("STRIDE_REG <- gp[rd]: elements from one HBM row to the next"),
    control(Op::C_SET_V_MASK_REG, "C_SET_V_MASK_REG", 0x2E)
        .with({gp_in("rd", Field::kRd)})
        .writes(kUsesMask)
        .doc("V_MASK <- gp[rd]: bit s enables lanes s*HLEN .. (s+1)*HLEN of instructions with rmask 1",
             "Lanes that are off take the value of the first source; reductions leave them out."),
    control(Op::C_LOOP_START, "C_LOOP_START", 0x2F)
        .with({gp_out("rd", Field::kRd), imm22()})
        .writes(kBranches)
        .doc("gp[rd] <- imm; starts a hardware loop",
             "gp[rd] counts down; it is not an induction variable. The body runs max(imm, 1) times."),
    control(Op::C_LOOP_END, "C_LOOP_END", 0x30)
        .with({gp_inout("rd", Field::kRd)})
        .writes(kBranches)
        .doc("if gp[rd] > 1: gp[rd] <- gp[rd] - 1, back to the first instruction of the body; else gp[rd] <- 0, go on",
             "Belongs to the innermost open C_LOOP_START of the program text and must name the same register."),
    control(Op::C_BREAK, "C_BREAK", 0x34)
        .writes(kBranches)
        .doc("ends the program", "A program also ends after its last instruction. To leave a loop, use C_BNZ."),
    control(Op::C_BNZ, "C_BNZ", 0x3D)
        .with({gp_in("rd", Field::kRd), kOffset})
        .writes(kBranches)
        .doc(
            "if gp[rd] != 0: go to this instruction + offset",
            "Offsets count instructions. Leaving a loop's body drops the loop; entering one from outside is an error."),
    control(Op::C_FENCE, "C_FENCE", 0x3E)
        .with({optional(uint("tag", Field::kTag, 15))})
        .writes(kWaits)
        .doc("waits for the transfers with this tag; tag 0: for all transfers",
             "No effect on values in the functional machine, which completes transfers in order."),
    control(Op::C_SET_CSR, "C_SET_CSR", 0x3F)
        .with({gp_in("rd", Field::kRd), kCsrNumber})
        .writes(kAllCsrs)
        .doc("control register <- gp[rd]", "The table below lists the registers."),
};

}  // namespace

std::span<const Row> transfer_and_control_rows() { return kControlRows; }

}  // namespace dllm::npu
