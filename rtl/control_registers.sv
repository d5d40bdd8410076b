// Address, scale, stride and mask registers, and the control registers of C_SET_CSR.
`include "fault.svh"
module control_registers #(
  localparam int Csrs = 27
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic [32*Csrs-1:0] csr_reset_i,  // values of the control registers when a program starts
  input  logic        set_i,               // an instruction C_SET_* ends
  input  logic [31:0] word_i,
  input  logic [31:0] d_i,                 // registers rd, rs1, rs2
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [63:0] address_o,           // of the register that a transfer's word names
  output logic [511:0] addresses_o,        // all
  output logic [31:0] scales_o,
  output logic [31:0] stride_o,
  output logic [31:0] mask_o,
  output logic [32*Csrs-1:0] csr_o,
  output logic [32*Csrs-1:0] csr_next_o    // after this cycle, for the instruction that is decoded in it
);
  logic [63:0] address_q[8];
  logic [31:0] csr_q[Csrs];
  assign address_o = address_q[word_i[16:14]];
  generate
    for (genvar i = 0; i < 8; i++) begin : g_address
      assign addresses_o[64*i+:64] = address_q[i];
    end
    for (genvar i = 0; i < Csrs; i++) begin : g_csr
      assign csr_o[32*i+:32] = csr_q[i];
      assign csr_next_o[32*i+:32] =
        set_i && word_i[5:0] == dllm_isa_pkg::OP_C_SET_CSR && word_i[18:14] == 5'(i) ? d_i : csr_q[i];
    end
  endgenerate
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < 8; i++) address_q[i] <= 64'd0;
      for (int i = 0; i < Csrs; i++) csr_q[i] <= 32'd0;
      scales_o <= 32'd0;
      stride_o <= 32'd0;
      mask_o <= 32'd0;
    end else if (start_i) begin
      for (int i = 0; i < Csrs; i++) csr_q[i] <= csr_reset_i[32*i+:32];
    end else if (set_i) begin
      case (word_i[5:0])
        dllm_isa_pkg::OP_C_SET_ADDR_REG: address_q[word_i[8:6]] <= {a_i, b_i};
        dllm_isa_pkg::OP_C_SET_SCALE_REG: scales_o <= d_i;
        dllm_isa_pkg::OP_C_SET_STRIDE_REG: stride_o <= d_i;
        dllm_isa_pkg::OP_C_SET_V_MASK_REG: mask_o <= d_i;
        dllm_isa_pkg::OP_C_SET_CSR: csr_q[word_i[18:14]] <= d_i;
        default: ;  // C_FENCE
      endcase
    end
  end

  logic unused_bits;
  assign unused_bits = &{word_i[31:19], word_i[13:9]};
endmodule
