// What the sequencer needs to know about an instruction before it executes. At most one class; none, and none of
// vector_class.sv: a trap.
module instruction_class #(
  parameter bit EXTERNAL = 0  // there are a matrix unit and a DMA engine
) (
  input  logic [31:0] word_i,
  output logic        loop_start_o,
  output logic        loop_end_o,
  output logic        int_o,       // results in a general register after one cycle
  output logic        load_int_o,
  output logic        store_int_o,
  output logic        scalar_o,    // f registers
  output logic        load_fp_o,
  output logic        store_fp_o,
  output logic        map_o,
  output logic        select_o,
  output logic        prefetch_o,
  output logic        setter_o,    // C_SET_*, C_FENCE: nothing is in flight here
  output logic        branch_o,
  output logic        break_o,
  output logic        external_o,  // executes outside: matrix instructions and transfers
  output logic        known_o      // any of them
);
  logic [5:0] op;
  assign op = word_i[5:0];

  logic unused_bits;
  assign unused_bits = &word_i[13:6];

  assign loop_start_o = op == dllm_isa_pkg::OP_C_LOOP_START;
  assign loop_end_o = op == dllm_isa_pkg::OP_C_LOOP_END;
  assign int_o = op == dllm_isa_pkg::OP_S_ADD_INT || op == dllm_isa_pkg::OP_S_ADDI_INT ||
                    op == dllm_isa_pkg::OP_S_SUB_INT || op == dllm_isa_pkg::OP_S_MUL_INT ||
                 op == dllm_isa_pkg::OP_S_LUI_INT;
  assign load_int_o = op == dllm_isa_pkg::OP_S_LD_INT;
  assign store_int_o = op == dllm_isa_pkg::OP_S_ST_INT;
  assign scalar_o = op == dllm_isa_pkg::OP_S_ADD_FP || op == dllm_isa_pkg::OP_S_SUB_FP ||
                    op == dllm_isa_pkg::OP_S_MUL_FP || op == dllm_isa_pkg::OP_S_MAX_FP ||
                    op == dllm_isa_pkg::OP_S_EXP_FP || op == dllm_isa_pkg::OP_S_RECI_FP ||
                    op == dllm_isa_pkg::OP_S_SQRT_FP ||
                    (op == dllm_isa_pkg::OP_S_LI_FP && word_i[31:30] <= 2'd1);  // and S_MV_FP
  assign load_fp_o = op == dllm_isa_pkg::OP_S_LD_FP;
  assign store_fp_o = op == dllm_isa_pkg::OP_S_ST_FP;
  assign map_o = op == dllm_isa_pkg::OP_S_MAP_V_FP;
  assign select_o = op == dllm_isa_pkg::OP_V_SELECT_INT;
  assign prefetch_o = op == dllm_isa_pkg::OP_H_PREFETCH_V && !EXTERNAL;
  assign setter_o = op == dllm_isa_pkg::OP_C_SET_ADDR_REG || op == dllm_isa_pkg::OP_C_SET_SCALE_REG ||
                    op == dllm_isa_pkg::OP_C_SET_STRIDE_REG ||
                    op == dllm_isa_pkg::OP_C_SET_V_MASK_REG || op == dllm_isa_pkg::OP_C_FENCE ||
                    (op == dllm_isa_pkg::OP_C_SET_CSR && word_i[31:14] <= 18'(dllm_isa_pkg::CSR_DRAW_TOKENS));
  assign branch_o = op == dllm_isa_pkg::OP_C_BNZ;
  assign break_o = op == dllm_isa_pkg::OP_C_BREAK;
  assign external_o = EXTERNAL && ((op >= dllm_isa_pkg::OP_M_MM && op <= dllm_isa_pkg::OP_M_BMV_WO) ||
                                   (op >= dllm_isa_pkg::OP_H_PREFETCH_M && op <= dllm_isa_pkg::OP_H_STORE_V) ||
                                   op == dllm_isa_pkg::OP_M_SUM);
  assign known_o = loop_start_o || loop_end_o || int_o || load_int_o || store_int_o || scalar_o || load_fp_o ||
                   store_fp_o || map_o || select_o || prefetch_o || setter_o || branch_o || break_o || external_o;
endmodule
