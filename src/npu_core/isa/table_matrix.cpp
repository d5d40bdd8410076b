// Matrix instructions. Reference: PLENA ISA (opcodes 0x01-0x0C), DART Table 1.

#include "npu_core/isa/table_builder.h"

namespace dllm::npu {
namespace {

constexpr Row matrix(Op op, std::string_view name, std::uint8_t opcode, Latency latency) {
  return row(op, name, opcode, Class::kMatrix, Unit::kMatrix, latency).reads(kUsesFormats);
}

constexpr Row write_out(Op op, std::string_view name, std::uint8_t opcode) {
  return row(op, name, opcode, Class::kMatrix, Unit::kMatrix, Latency::kWriteOut);
}

constexpr unsigned kHeads = kUsesBmmShape;

constexpr Row kMatrixRows[] = {
    matrix(Op::M_MM, "M_MM", 0x01, Latency::kMatrixTile)
        .with({zero(Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1, Extent::kColumnSlice),
                  load(Space::kVram, Base::kRs2, Extent::kTileRows), accumulate(Space::kAccMm)})
        .doc("acc[BLEN x BLEN] += VRAM[gp[rs2]] (BLEN x MLEN) . MRAM[gp[rs1]] (MLEN x BLEN)",
             "The slice of the tile is chosen by the address within it: column block c by c*BLEN, or, as newer PLENA "
             "code writes it, by c*BLEN*MLEN. Rows of the vector operand are VLEN apart."),
    matrix(Op::M_TMM, "M_TMM", 0x02, Latency::kMatrixTile)
        .with({zero(Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kVram, Base::kRs1, Extent::kTileRows), load(Space::kMram, Base::kRs2, Extent::kRowSlice),
                  accumulate(Space::kAccMm)})
        .doc("acc[BLEN x BLEN] += VRAM[gp[rs1]] (BLEN x MLEN) . transposed MRAM[gp[rs2]] (BLEN x MLEN)",
             "The operands' roles are swapped against M_MM. Row block c of the tile is at c*BLEN*MLEN."),
    matrix(Op::M_BMM, "M_BMM", 0x03, Latency::kMatrixHeads)
        .with({zero(Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1, Extent::kHeadSlices),
                  load(Space::kVram, Base::kRs2, Extent::kHeadRows), accumulate(Space::kAccBmm)})
        .reads(kHeads)
        .doc("per head h < MLEN/HLEN: acc_h[bmm_rows x bmm_cols] += V_h (bmm_rows x HLEN) . M_h (HLEN x bmm_cols)",
             "V_h: lanes h*HLEN.. of the rows. M_h: HLEN rows of the tile, from the row of gp[rs1]; bmm_group "
             "consecutive "
             "heads share one M (reset: all, PLENA's broadcast), the next group takes the next HLEN rows. With "
             "bmm_layout 1 it takes the next bmm_cols lanes of the same rows instead, and gp[rs1] is row*MLEN + lane "
             "within the tile: P V with V as it was projected. PLENA's emulator interleaves the heads in the lanes of "
             "a row (head h has lanes h, h + MLEN/HLEN, ...) in M_BMM and M_BMV, and has them as here in M_BTMM and "
             "M_BTMV. Its manual has only the latter form, and no generator emits the former."),
    matrix(Op::M_BTMM, "M_BTMM", 0x04, Latency::kMatrixHeads)
        .with({zero(Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1, Extent::kHeadSlicesT),
                  load(Space::kVram, Base::kRs2, Extent::kHeadRows), accumulate(Space::kAccBmm)})
        .reads(kHeads)
        .doc("as M_BMM with M_h transposed: acc_h += V_h (bmm_rows x HLEN) . transposed M_h (bmm_cols x HLEN)",
             "M_h: lanes of the tile's rows, from the lane of gp[rs1]; the next group takes the next HLEN lanes. Q "
             "K^T."),
    write_out(Op::M_BMM_WO, "M_BMM_WO", 0x05)
        .with({gp_in("rd", Field::kRd), imm18()})
        .touches({{Space::kAccBmm, Access::kReadWrite, Base::kNone, Extent::kAccumulator},
                  store(Space::kVram, Base::kRdImm, Extent::kBmmOut)})
        .reads(kHeads | kUsesBmmScale)
        .doc(
            "VRAM[gp[rd] + imm] <- bmm_scale * acc_h for all heads; the accumulator is cleared",
            "Row r of head h starts at h*bmm_head_stride + r*VLEN. bmm_head_stride 0 (reset) is bmm_rows*VLEN, PLENA's "
            "layout; bmm_cols packs the heads of one row into its lanes. One FP32 multiplication by bmm_scale, then "
            "BF16."),
    write_out(Op::M_MM_WO, "M_MM_WO", 0x06)
        .with({gp_in("rd", Field::kRd), gp_in("rstride", Field::kRs1), imm18()})
        .touches({{Space::kAccMm, Access::kReadWrite, Base::kNone, Extent::kAccumulator},
                  store(Space::kVram, Base::kRdImm, Extent::kMmOut)})
        .doc("VRAM[gp[rd] + imm] <- acc (BLEN x BLEN), rows gp[rstride] VLEN-rows apart (0: 1); acc is cleared",
             "One rounding, to BF16."),
    matrix(Op::M_MV, "M_MV", 0x07, Latency::kMatrixVector)
        .with({zero(Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1, Extent::kColumnSlice),
                  load(Space::kVram, Base::kRs2, Extent::kLaneGroup), accumulate(Space::kAccMv)})
        .doc("accrow[BLEN] += VRAM[gp[rs2]] (1 x MLEN) . MRAM[gp[rs1]] (MLEN x BLEN)",
             "The slice of the tile is chosen as by M_MM. This is PLENA's emulator and its generators; its manual has "
             "the operands the other way round and MLEN outputs."),
    matrix(Op::M_TMV, "M_TMV", 0x08, Latency::kMatrixVector)
        .with({zero(Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1, Extent::kTransposedSlice),
                  load(Space::kVram, Base::kRs2, Extent::kLaneGroup), accumulate(Space::kAccMv)})
        .doc("accrow[BLEN] += VRAM[gp[rs2]] (1 x MLEN) . transposed MRAM[gp[rs1]] (BLEN x MLEN)",
             "Block c of the transposed tile is at c*BLEN, as in PLENA's emulator, or at c*BLEN*MLEN, as in its "
             "flash-attention template. That template has the vector in rs1 and the matrix in rs2: the machine's "
             "switch tmv_vector_first (dllm npu run --tmv-vector-first) reads them so."),
    matrix(Op::M_BMV, "M_BMV", 0x09, Latency::kMatrixVector)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1Rd, Extent::kHeadSlices),
                  load(Space::kVram, Base::kRs2, Extent::kLaneGroup), accumulate(Space::kAccBmv)})
        .reads(kHeads)
        .doc("per head: accrows_h[bmm_cols] += V_h (1 x HLEN) . M_h; the matrix address is gp[rs1] + gp[rd]"),
    matrix(Op::M_BTMV, "M_BTMV", 0x0A, Latency::kMatrixVector)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2)})
        .touches({load(Space::kMram, Base::kRs1Rd, Extent::kHeadSlicesT),
                  load(Space::kVram, Base::kRs2, Extent::kLaneGroup), accumulate(Space::kAccBmv)})
        .reads(kHeads)
        .doc("as M_BMV with M_h transposed"),
    write_out(Op::M_MV_WO, "M_MV_WO", 0x0B)
        .with({gp_in("rd", Field::kRd), imm18()})
        .touches({{Space::kAccMv, Access::kReadWrite, Base::kNone, Extent::kAccumulator},
                  store(Space::kVram, Base::kRdImm, Extent::kMvOut)})
        .doc("VRAM[gp[rd] + imm] <- accrow (BLEN lanes); accrow is cleared",
             "The address is a multiple of BLEN; the other lanes of the row keep their values. One rounding, to BF16."),
    write_out(Op::M_BMV_WO, "M_BMV_WO", 0x0C)
        .with({gp_in("rd", Field::kRd), imm18()})
        .touches({{Space::kAccBmv, Access::kReadWrite, Base::kNone, Extent::kAccumulator},
                  store(Space::kVram, Base::kRdImm, Extent::kBmvOut)})
        .reads(kHeads | kUsesBmmScale)
        .doc("VRAM[gp[rd] + imm] <- bmm_scale * accrows_h; accrows are cleared",
             "Head h starts at h*bmm_head_stride; 0 (reset) is VLEN."),
    row(Op::M_SUM, "M_SUM", 0x3C, Class::kMatrix, Unit::kMatrix, Latency::kMatrixFlush)
        .touches({accumulate(Space::kAccMm), accumulate(Space::kAccBmm), accumulate(Space::kAccMv),
                  accumulate(Space::kAccBmv)})
        .doc("flushes the adder tree after the sub-arrays",
             "The write-out instructions do so themselves: no effect on values. PLENA's branch plena-compiler has "
             "M_TMM_A at this opcode: --words plena-compiler."),
};

}  // namespace

std::span<const Row> matrix_rows() { return kMatrixRows; }

}  // namespace dllm::npu
