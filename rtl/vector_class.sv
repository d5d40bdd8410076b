// The instructions of vector_unit.sv. At most one of the outputs up to draw_o is set.
module vector_class (
  input  logic [31:0] word_i,
  output logic        add_o,       // V_ADD, V_SUB
  output logic        multiply_o,
  output logic        exp_o,
  output logic        root_o,      // V_RECI_V, V_SQRT_V
  output logic        extreme_o,   // V_MAX, V_MIN: lane by lane
  output logic        max_o,       // V_RED_MAX
  output logic        max_index_o,
  output logic        max_seg_o,
  output logic        sum_o,       // V_RED_SUM
  output logic        sum_seg_o,
  output logic        scan_o,
  output logic        shift_o,
  output logic        hadamard_o,
  output logic        top_o,       // V_TOPK_MASK
  output logic        router_o,    // V_TOPK
  output logic        draw_o,      // V_RED_DRAW
  output logic        known_o,     // any of them
  output logic        row_rs1_o,   // reads the row of rs1
  output logic        row_rs2_o,   // and that of rs2
  output logic        row_rd_o     // writes that of rd
);
  logic [5:0] op;
  logic plain, one;
  assign op = word_i[5:0];
  assign plain = word_i[25:22] == 4'd0;  // the function code that selects rows of one opcode
  assign one = word_i[25:22] == 4'd1;

  logic vv, extreme;
  assign vv = op == dllm_isa_pkg::OP_V_ADD_VV || op == dllm_isa_pkg::OP_V_SUB_VV ||
              op == dllm_isa_pkg::OP_V_MUL_VV;
  assign add_o = op == dllm_isa_pkg::OP_V_ADD_VV || op == dllm_isa_pkg::OP_V_SUB_VV ||
                 op == dllm_isa_pkg::OP_V_ADD_VF || op == dllm_isa_pkg::OP_V_SUB_VF;
  assign multiply_o = op == dllm_isa_pkg::OP_V_MUL_VV || op == dllm_isa_pkg::OP_V_MUL_VF;
  assign exp_o = op == dllm_isa_pkg::OP_V_EXP_V;
  assign root_o = op == dllm_isa_pkg::OP_V_RECI_V && (plain || one);
  assign extreme = op == dllm_isa_pkg::OP_V_MAX_VF || op == dllm_isa_pkg::OP_V_MIN_VF;
  assign extreme_o = extreme && (plain || one);
  assign max_o = op == dllm_isa_pkg::OP_V_RED_MAX && plain;
  assign max_seg_o = op == dllm_isa_pkg::OP_V_RED_MAX && one;
  assign sum_o = op == dllm_isa_pkg::OP_V_RED_SUM && plain;
  assign sum_seg_o = op == dllm_isa_pkg::OP_V_RED_SUM && one;
  assign scan_o = op == dllm_isa_pkg::OP_V_PS_V;
  assign shift_o = op == dllm_isa_pkg::OP_V_SHFT_V && word_i[25:22] <= 4'd2;
  assign hadamard_o = op == dllm_isa_pkg::OP_C_HADAMARD_TRANSFORM;
  assign top_o = op == dllm_isa_pkg::OP_V_TOPK_MASK;
  assign router_o = op == dllm_isa_pkg::OP_V_TOPK && word_i[21:18] <= 4'd2;
  assign max_index_o = op == dllm_isa_pkg::OP_V_RED_MAX_IDX && word_i[31:30] == 2'd0;
  assign draw_o = op == dllm_isa_pkg::OP_V_RED_MAX_IDX && word_i[31:30] == 2'd1;

  logic lanes;
  assign lanes = add_o || multiply_o || exp_o || root_o || extreme_o || max_seg_o || sum_seg_o || scan_o || shift_o ||
                 hadamard_o;
  assign known_o = lanes || max_o || max_index_o || sum_o || top_o || router_o || draw_o;
  assign row_rs1_o = known_o;
  assign row_rs2_o = vv || (extreme_o && one) || top_o;
  assign row_rd_o = lanes || top_o;

  logic unused_bits;
  assign unused_bits = &{word_i[29:26], word_i[17:6]};
endmodule
