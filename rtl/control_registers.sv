// Address, scale, stride and mask registers, and the engine's only control register.
module control_registers (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic [31:0] prefetch_rows_i,  // reset value of the control register
  input  logic        set_i,            // an instruction C_SET_* ends
  input  logic [31:0] word_i,
  input  logic [31:0] d_i,              // registers rd, rs1, rs2
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [63:0] address_o,        // of the register that a transfer's word names
  output logic [31:0] scales_o,
  output logic [31:0] stride_o,
  output logic [31:0] mask_o,
  output logic [31:0] rows_o
);
  logic [63:0] address_q[8];
  assign address_o = address_q[word_i[16:14]];
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < 8; i++) address_q[i] <= 64'd0;
      scales_o <= 32'd0;
      stride_o <= 32'd0;
      mask_o <= 32'd0;
      rows_o <= 32'd0;
    end else begin
      if (start_i) rows_o <= prefetch_rows_i;
      if (set_i)
        case (word_i[5:0])
          dllm_isa_pkg::OP_C_SET_ADDR_REG: address_q[word_i[8:6]] <= {a_i, b_i};
          dllm_isa_pkg::OP_C_SET_SCALE_REG: scales_o <= d_i;
          dllm_isa_pkg::OP_C_SET_STRIDE_REG: stride_o <= d_i;
          dllm_isa_pkg::OP_C_SET_V_MASK_REG: mask_o <= d_i;
          dllm_isa_pkg::OP_C_SET_CSR: rows_o <= d_i;
          default: ;  // C_FENCE
        endcase
    end
  end

  logic unused_bits;
  assign unused_bits = &{word_i[31:17], word_i[13:9]};
endmodule
