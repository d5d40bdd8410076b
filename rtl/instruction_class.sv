// What the sequencer needs to know about an instruction before it executes. At most one class; none: a trap.
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
  output logic        add_o,       // V_ADD, V_SUB
  output logic        two_rows_o,  // of vector SRAM are read
  output logic        exp_o,
  output logic        max_o,
  output logic        max_index_o,
  output logic        sum_o,
  output logic        top_o,
  output logic        select_o,
  output logic        prefetch_o,
  output logic        setter_o,    // C_SET_*, C_FENCE: nothing is in flight here
  output logic        break_o,
  output logic        external_o,  // executes outside: matrix instructions, transfers, setters of their registers
  output logic        known_o
);
  logic [5:0] op;
  logic vv, plain;
  assign op = word_i[5:0];
  assign plain = word_i[25:22] == 4'd0;  // funct1

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
                    op == dllm_isa_pkg::OP_S_LI_FP;
  assign load_fp_o = op == dllm_isa_pkg::OP_S_LD_FP;
  assign store_fp_o = op == dllm_isa_pkg::OP_S_ST_FP;
  assign map_o = op == dllm_isa_pkg::OP_S_MAP_V_FP;
  assign vv = op == dllm_isa_pkg::OP_V_ADD_VV || op == dllm_isa_pkg::OP_V_SUB_VV;
  assign add_o = vv || op == dllm_isa_pkg::OP_V_ADD_VF || op == dllm_isa_pkg::OP_V_SUB_VF;
  assign two_rows_o = vv || top_o;
  assign exp_o = op == dllm_isa_pkg::OP_V_EXP_V;
  assign max_o = op == dllm_isa_pkg::OP_V_RED_MAX && plain;
  assign max_index_o = op == dllm_isa_pkg::OP_V_RED_MAX_IDX;
  assign sum_o = op == dllm_isa_pkg::OP_V_RED_SUM && plain;
  assign top_o = op == dllm_isa_pkg::OP_V_TOPK_MASK;
  assign select_o = op == dllm_isa_pkg::OP_V_SELECT_INT;
  assign prefetch_o = op == dllm_isa_pkg::OP_H_PREFETCH_V && !EXTERNAL;
  assign setter_o = op == dllm_isa_pkg::OP_C_SET_ADDR_REG || op == dllm_isa_pkg::OP_C_SET_SCALE_REG ||
                    op == dllm_isa_pkg::OP_C_SET_STRIDE_REG ||
                    op == dllm_isa_pkg::OP_C_SET_V_MASK_REG || op == dllm_isa_pkg::OP_C_FENCE ||
                    (op == dllm_isa_pkg::OP_C_SET_CSR && word_i[31:14] == 18'(dllm_isa_pkg::CSR_PREFETCH_V_ROWS));
  logic matrix_register;
  always_comb begin
    case (word_i[31:14])
      18'(dllm_isa_pkg::CSR_BMM_SCALE), 18'(dllm_isa_pkg::CSR_PREFETCH_M_ROWS), 18'(dllm_isa_pkg::CSR_STORE_V_ROWS),
      18'(dllm_isa_pkg::CSR_BMM_ROWS), 18'(dllm_isa_pkg::CSR_BMM_COLS), 18'(dllm_isa_pkg::CSR_BMM_GROUP),
      18'(dllm_isa_pkg::CSR_BMM_HEAD_STRIDE), 18'(dllm_isa_pkg::CSR_FORMAT_WEIGHT),
      18'(dllm_isa_pkg::CSR_FORMAT_MATRIX_KV), 18'(dllm_isa_pkg::CSR_FORMAT_ACTIVATION),
      18'(dllm_isa_pkg::CSR_FORMAT_VECTOR_KV), 18'(dllm_isa_pkg::CSR_FORMAT_MATRIX_INPUT),
      18'(dllm_isa_pkg::CSR_BMM_LAYOUT), 18'(dllm_isa_pkg::CSR_MM_ROWS): matrix_register = 1'b1;
      default: matrix_register = 1'b0;
    endcase
  end
  assign external_o = EXTERNAL && ((op >= dllm_isa_pkg::OP_M_MM && op <= dllm_isa_pkg::OP_M_BMV_WO) ||
                                   (op >= dllm_isa_pkg::OP_H_PREFETCH_M && op <= dllm_isa_pkg::OP_H_STORE_V) ||
                                   op == dllm_isa_pkg::OP_M_SUM ||
                                   (op == dllm_isa_pkg::OP_C_SET_CSR && matrix_register));
  assign break_o = op == dllm_isa_pkg::OP_C_BREAK;
  assign known_o = loop_start_o || loop_end_o || int_o || load_int_o || store_int_o || scalar_o || load_fp_o ||
                    store_fp_o || map_o || add_o || exp_o || max_o || max_index_o || sum_o || top_o ||
                    select_o ||
                   prefetch_o || setter_o || break_o || external_o;
endmodule
