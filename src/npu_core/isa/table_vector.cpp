// Vector and sampling instructions. Reference: PLENA ISA (0x0D-0x16, 0x31-0x37), the dLLM extension of d-PLENA/DART.

#include "npu_core/isa/table_builder.h"

namespace dllm::npu {
namespace {

constexpr int kFunctLow = 22, kFunctWidth = 4;  // Field::kFunct

constexpr Row vector(Op op, std::string_view name, std::uint8_t opcode, Latency latency) {
  return row(op, name, opcode, Class::kVector, Unit::kVector, latency);
}

constexpr Row sampling(Op op, std::string_view name, std::uint8_t opcode, Latency latency) {
  return row(op, name, opcode, Class::kSampling, Unit::kVector, latency);
}

constexpr Row masked(Row base) { return base.reads(kUsesMask); }

/// VRAM[rd] <- f(VRAM[rs1], VRAM[rs2])
constexpr Row row_row(Row base) {
  return masked(
      base.with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2), rmask()})
          .touches({load(Space::kVram, Base::kRs1, Extent::kRow), load(Space::kVram, Base::kRs2, Extent::kRow),
                    store(Space::kVram, Base::kRd, Extent::kRow)}));
}

/// VRAM[rd] <- f(VRAM[rs1], f[rs2])
constexpr Row row_scalar(Row base) {
  return masked(
      base.with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), fp_in("rs2", Field::kRs2), rmask()})
          .touches({load(Space::kVram, Base::kRs1, Extent::kRow), store(Space::kVram, Base::kRd, Extent::kRow)}));
}

/// VRAM[rd] <- f(VRAM[rs1])
constexpr Row row_only(Row base) {
  return masked(
      base.with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), rmask()})
          .touches({load(Space::kVram, Base::kRs1, Extent::kRow), store(Space::kVram, Base::kRd, Extent::kRow)}));
}

/// f[rd] <- f(f[rd], VRAM[rs1])
constexpr Row reduction(Row base) {
  return masked(base.with({fp_inout("rd", Field::kRd), gp_in("rs1", Field::kRs1), rmask()})
                    .touches({load(Space::kVram, Base::kRs1, Extent::kRow)}));
}

constexpr Row kVectorRows[] = {
    row_row(vector(Op::V_ADD_VV, "V_ADD_VV", 0x0D, Latency::kVectorAdd))
        .doc("VRAM[gp[rd]] <- VRAM[gp[rs1]] + VRAM[gp[rs2]]"),
    row_scalar(vector(Op::V_ADD_VF, "V_ADD_VF", 0x0E, Latency::kVectorAdd))
        .doc("VRAM[gp[rd]] <- VRAM[gp[rs1]] + f[rs2]"),
    row_row(vector(Op::V_SUB_VV, "V_SUB_VV", 0x0F, Latency::kVectorAdd))
        .doc("VRAM[gp[rd]] <- VRAM[gp[rs1]] - VRAM[gp[rs2]]", "PLENA's prose says rs2 - rs1, its emulator rs1 - rs2."),
    masked(vector(Op::V_SUB_VF, "V_SUB_VF", 0x10, Latency::kVectorAdd)
               .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), fp_in("rs2", Field::kRs2), rmask(),
                      optional(uint("rorder", Field::kFunct, 1))})
               .touches({load(Space::kVram, Base::kRs1, Extent::kRow), store(Space::kVram, Base::kRd, Extent::kRow)}))
        .doc("VRAM[gp[rd]] <- VRAM[gp[rs1]] - f[rs2]; with rorder 1: f[rs2] - VRAM[gp[rs1]]"),
    row_row(vector(Op::V_MUL_VV, "V_MUL_VV", 0x11, Latency::kVectorMul))
        .doc("VRAM[gp[rd]] <- VRAM[gp[rs1]] * VRAM[gp[rs2]]"),
    row_scalar(vector(Op::V_MUL_VF, "V_MUL_VF", 0x12, Latency::kVectorMul))
        .doc("VRAM[gp[rd]] <- VRAM[gp[rs1]] * f[rs2]"),
    row_only(vector(Op::V_EXP_V, "V_EXP_V", 0x13, Latency::kVectorExp))
        .doc("VRAM[gp[rd]] <- exp(VRAM[gp[rs1]])",
             "The argument is clamped to [-88, 88]; the result is correctly rounded."),
    row_only(vector(Op::V_RECI_V, "V_RECI_V", 0x14, Latency::kVectorReci))
        .variant(kFunctLow, kFunctWidth, 0)
        .doc("VRAM[gp[rd]] <- 1 / VRAM[gp[rs1]]"),
    row_only(vector(Op::V_SQRT_V, "V_SQRT_V", 0x14, Latency::kVectorReci))
        .variant(kFunctLow, kFunctWidth, 1)
        .doc("VRAM[gp[rd]] <- square root of VRAM[gp[rs1]]",
             "Extension: norms of heads, which differ from lane to lane. Correctly rounded; NaN below zero."),
    reduction(vector(Op::V_RED_SUM, "V_RED_SUM", 0x15, Latency::kVectorSum))
        .variant(kFunctLow, kFunctWidth, 0)
        .doc("f[rd] <- f[rd] + sum of VRAM[gp[rs1]]",
             "Adjacent-pair tree in FP32. f[rd] keeps FP32 for the next V_RED_SUM; every other reader sees it rounded "
             "to BF16. Into f0: no operation."),
    row_only(vector(Op::V_RED_SUM_SEG, "V_RED_SUM_SEG", 0x15, Latency::kVectorSum))
        .variant(kFunctLow, kFunctWidth, 1)
        .reads(kUsesSegment)
        .doc("VRAM[gp[rd]] <- for each section of segment_length lanes, its sum, in all its lanes",
             "Extension: the tree of V_RED_SUM stopped early, so that several (head, row) pairs share one row."),
    reduction(vector(Op::V_RED_MAX, "V_RED_MAX", 0x16, Latency::kVectorMax))
        .variant(kFunctLow, kFunctWidth, 0)
        .doc("f[rd] <- max(f[rd], VRAM[gp[rs1]])", "Into f0: no operation."),
    row_only(vector(Op::V_RED_MAX_SEG, "V_RED_MAX_SEG", 0x16, Latency::kVectorMax))
        .variant(kFunctLow, kFunctWidth, 1)
        .reads(kUsesSegment)
        .doc("VRAM[gp[rd]] <- for each section of segment_length lanes, its maximum, in all its lanes", "Extension."),
    row_only(vector(Op::V_PS_V, "V_PS_V", 0x31, Latency::kVectorScan))
        .doc("VRAM[gp[rd]] <- inclusive prefix sum of VRAM[gp[rs1]]",
             "FP32, from lane 0 upwards; each lane is rounded to BF16. Inactive lanes count as 0."),
    vector(Op::V_SHFT_V, "V_SHFT_V", 0x32, Latency::kVectorShift)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2),
               optional(uint("mode", Field::kFunct, 2))})
        .touches({load(Space::kVram, Base::kRs1, Extent::kRow), store(Space::kVram, Base::kRd, Extent::kRow)})
        .reads(kUsesSegment)
        .also_named("V_SHIFT_V")
        .doc(
            "VRAM[gp[rd]] <- VRAM[gp[rs1]] moved gp[rs2] lanes up",
            "mode 0: zeros come in, as in PLENA; 1: rotation of the row; 2: rotation within sections of segment_length "
            "lanes (RoPE's half rotation). Modes 1 and 2 are extensions."),
    vector(Op::C_HADAMARD_TRANSFORM, "C_HADAMARD_TRANSFORM", 0x33, Latency::kHadamard)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1)})
        .touches({load(Space::kVram, Base::kRs1, Extent::kRow), store(Space::kVram, Base::kRd, Extent::kRow)})
        .reads(kUsesSegment)
        .doc("VRAM[gp[rd]] <- orthonormal Walsh-Hadamard transform of each section of segment_length lanes",
             "FP32 butterflies of distance 1, 2, 4, ..., one multiplication by segment_length^-1/2, one rounding to "
             "BF16. The operand form is this project's: PLENA's emulator does not decode the opcode."),
    row_scalar(vector(Op::V_MAX_VF, "V_MAX_VF", 0x35, Latency::kVectorMax))
        .variant(kFunctLow, kFunctWidth, 0)
        .doc("VRAM[gp[rd]] <- max(VRAM[gp[rs1]], f[rs2])",
             "PLENA's branch plena-compiler has S_MAP_FP_V at this opcode: --words plena-compiler."),
    row_row(vector(Op::V_MAX_VV, "V_MAX_VV", 0x35, Latency::kVectorMax))
        .variant(kFunctLow, kFunctWidth, 1)
        .doc("VRAM[gp[rd]] <- max(VRAM[gp[rs1]], VRAM[gp[rs2]])", "Extension."),
    row_scalar(vector(Op::V_MIN_VF, "V_MIN_VF", 0x36, Latency::kVectorMax))
        .variant(kFunctLow, kFunctWidth, 0)
        .doc("VRAM[gp[rd]] <- min(VRAM[gp[rs1]], f[rs2])"),
    row_row(vector(Op::V_MIN_VV, "V_MIN_VV", 0x36, Latency::kVectorMax))
        .variant(kFunctLow, kFunctWidth, 1)
        .doc("VRAM[gp[rd]] <- min(VRAM[gp[rs1]], VRAM[gp[rs2]])", "Extension."),
    vector(Op::V_TOPK, "V_TOPK", 0x37, Latency::kRouterTopK)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2),
               optional(uint("policy", Field::kRs3, 2))})
        .touches({load(Space::kVram, Base::kRs1, Extent::kRouterRow),
                  store(Space::kFpMem, Base::kRd, Extent::kRouterTop),
                  store(Space::kIntMem, Base::kRs2, Extent::kRouterTop)})
        .reads(kUsesRouter)
        .doc("MoE router: FP_MEM[gp[rd]..] <- softmax over the k largest of VRAM[gp[rs1]], INT_MEM[gp[rs2]..] <- their "
             "lanes",
             "policy 0: 32 experts, k = 4; 1: 128, k = 8; 2 (extension): router_experts, router_top. Descending; the "
             "lower lane wins ties."),
    sampling(Op::V_RED_MAX_IDX, "V_RED_MAX_IDX", 0x38, Latency::kVectorMax)
        .variant(30, 2, 0)
        .with({gp_inout("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2),
               fp_inout("rs3", Field::kRs3)})
        .touches({load(Space::kVram, Base::kRs1, Extent::kRow)})
        .doc("if max of VRAM[gp[rs1]] > f[rs3]: f[rs3] <- the maximum, gp[rd] <- gp[rs2] + its lane",
             "Strictly greater, lowest lane first: the first index wins within and across rows. Start f[rs3] at -inf "
             "(S_LI_FP); 0, as in the published kernel, loses rows whose logits are all negative."),
    sampling(Op::V_RED_DRAW, "V_RED_DRAW", 0x38, Latency::kVectorDraw)
        .variant(30, 2, 1)
        .with({gp_inout("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2),
               fp_inout("rs3", Field::kRs3), fp_inout("rs4", Field::kFunct), gp_in("rs5", Field::kTag)})
        .touches({load(Space::kVram, Base::kRs1, Extent::kRow)})
        .reads(kUsesDraw)
        .doc(
            "if the largest key of VRAM[gp[rs1]] > f[rs3]: f[rs3] <- the key, f[rs4] <- its logit, gp[rd] <- gp[rs2] + "
            "its lane",
            "A draw from the softmax of the logits divided by T (Gumbel-max). The lane of token t = gp[rs2] + lane has "
            "the logit z and the key z / T + g, g = -ln(-ln u), u = (2^20 w0 + floor(w1 / 2^12) + 1/2) / 2^52, where "
            "w0 w1 w2 w3 = Philox4x32-10 of the counter (t, gp[rs5], draw_step, draw_stream) and the key "
            "(draw_seed_low, draw_seed_high). draw_precision 0: z / T + g in FP64, each operation rounded; 1: FP32 z * "
            "(1/T) + g, each factor, product, g and sum rounded; 2: the same in BF16. f[rs3] keeps the key in that "
            "precision for the next V_RED_DRAW; other readers see it rounded to FP32, then BF16. Strictly greater, "
            "lowest lane first. Token draw_except, tokens from draw_tokens on, NaN logits and logits of -inf are never "
            "drawn. Start f[rs3] at -inf. Traps on devices without noise generators (array.noise_lanes = 0)."),
    sampling(Op::V_TOPK_MASK, "V_TOPK_MASK", 0x39, Latency::kTopKMask)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2), gp_in("rs3", Field::kRs3),
               gp_in("rs4", Field::kFunct)})
        .touches({load(Space::kVram, Base::kRs1, Extent::kLengthRs4),
                  load(Space::kVram, Base::kRs2, Extent::kLengthRs4),
                  store(Space::kVram, Base::kRd, Extent::kLengthRs4)})
        .doc("VRAM[gp[rd]] <- 1 at the gp[rs3] largest of VRAM[gp[rs1]][0 .. gp[rs4]) among lanes set in "
             "VRAM[gp[rs2]], else 0",
             "k = 0 gives zeros, k >= the number of lanes set gives all of these. The lower lane wins ties. Lanes from "
             "gp[rs4] to the end of the last row become 0."),
    sampling(Op::V_SELECT_INT, "V_SELECT_INT", 0x3A, Latency::kSelectInt)
        .with({gp_in("rd", Field::kRd), gp_in("rs1", Field::kRs1), gp_in("rs2", Field::kRs2), gp_in("rs3", Field::kRs3),
               gp_in("rs4", Field::kFunct)})
        .touches(
            {load(Space::kIntMem, Base::kRs1, Extent::kLengthRs4), load(Space::kIntMem, Base::kRs2, Extent::kLengthRs4),
             load(Space::kVram, Base::kRs3, Extent::kLengthRs4), store(Space::kIntMem, Base::kRd, Extent::kLengthRs4)})
        .doc("INT_MEM[gp[rd]+i] <- VRAM[gp[rs3]][i] != 0 ? INT_MEM[gp[rs1]+i] : INT_MEM[gp[rs2]+i], i < gp[rs4]",
             "where(mask, new, old).")
        .also_named("S_SELECT_INT"),
};

}  // namespace

std::span<const Row> vector_rows() { return kVectorRows; }

}  // namespace dllm::npu
