// The scalar integer unit: one cycle each, modulo 2^32.
module scalar_int (
  input  logic [31:0] word_i,
  input  logic [31:0] a_i,     // gp[rs1], gp[rs2]
  input  logic [31:0] b_i,
  output logic [31:0] result_o
);
  logic [31:0] product;
  assign product = a_i * b_i;
  always_comb begin
    case (word_i[5:0])
      dllm_isa_pkg::OP_S_ADD_INT: result_o = a_i + b_i;
      dllm_isa_pkg::OP_S_ADDI_INT: result_o = a_i + {14'b0, word_i[31:14]};
      dllm_isa_pkg::OP_S_SUB_INT: result_o = a_i - b_i;
      dllm_isa_pkg::OP_S_MUL_INT: result_o = product;
      default: result_o = {word_i[29:10], 12'b0};  // S_LUI_INT
    endcase
  end

  logic unused_bits;
  assign unused_bits = &word_i[9:6];
endmodule
