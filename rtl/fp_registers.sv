// f0 to f7. They hold FP32, and keys of draws in FP64 (draw_keys.sv); readers get BF16. A NaN becomes quiet on its way
// in. f0 stays 0.
`include "assert.svh"
`include "fault.svh"
module fp_registers #(
  parameter int DRAWS = 0
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic [31:0]  word_i,       // the executing instruction
  input  logic         ends_i,       // in this cycle
  input  logic         scalar_i,     // its kind, and its result: BF16 where nothing else is said
  input  logic [15:0]  scalar_result_i,
  input  logic         load_i,
  input  logic [15:0]  loaded_i,
  input  logic         max_i,        // V_RED_MAX
  input  logic         max_index_i,
  input  logic         max_found_i,
  input  logic         max_greater_i,
  input  logic [15:0]  max_value_i,
  input  logic         sum_i,
  input  logic [31:0]  sum_value_i,  // FP32
  input  logic         draw_i,
  input  logic         drawn_i,
  input  logic [15:0]  drawn_logit_i,
  input  logic [63:0]  drawn_key_i,  // FP64
  output logic [15:0]  d_o,          // f[rd], f[rs1], f[rs2], f[rs3]
  output logic [15:0]  a_o,
  output logic [15:0]  b_o,
  output logic [15:0]  c_o,
  output logic [31:0]  d_wide_o,     // f[rd] in FP32
  output logic [63:0]  key_o,        // f[rs3] in FP64
  output logic [255:0] fp_o
);
  logic [31:0] fp_q[8];
  f32_to_bf16 i_d (.value_i(d_wide_o), .bf16_o(d_o));
  f32_to_bf16 i_a (.value_i(fp_q[word_i[12:10]]), .bf16_o(a_o));
  f32_to_bf16 i_b (.value_i(fp_q[word_i[16:14]]), .bf16_o(b_o));
  f32_to_bf16 i_c (.value_i(fp_q[word_i[20:18]]), .bf16_o(c_o));
  assign d_wide_o = fp_q[word_i[8:6]];

  logic write, key_write;
  logic [2:0] target;
  logic [31:0] value, key_narrow;
  always_comb begin
    target = max_index_i ? word_i[20:18] : draw_i ? word_i[24:22] : word_i[8:6];
    write = ends_i && target != 3'd0 && (scalar_i || load_i || sum_i || (max_i && max_found_i) ||
                                         (max_index_i && max_greater_i) || (draw_i && drawn_i));
    value = {scalar_result_i, 16'b0};
    if (load_i) value = {loaded_i, 16'b0};
    // V_RED_MAX leaves BF16 in the register even if that value stays the maximum.
    if (max_i || max_index_i) value = {max_greater_i ? max_value_i : d_o, 16'b0};
    if (sum_i) value = sum_value_i;
    if (draw_i) value = {drawn_logit_i, 16'b0};
    if (word_i[5:0] == dllm_isa_pkg::OP_S_LI_FP && word_i[31:30] == 2'd0) value = {word_i[29:14], 16'b0};
    if (value[30:0] > 31'h7f800000 && !`FAULT(20)) value[22] = 1'b1;
  end
  assign key_write = ends_i && draw_i && drawn_i && word_i[20:18] != 3'd0;
  generate
    if (DRAWS != 0) begin : g_keys
      draw_keys i_keys (
        .clk_i, .rst_ni, .write_i(write), .register_i(target), .key_write_i(key_write),
        .key_register_i(word_i[20:18]), .key_i(drawn_key_i), .value_i(fp_q[word_i[20:18]]), .running_o(key_o),
        .narrow_o(key_narrow)
      );
    end else begin : g_no_keys
      assign key_o = 64'b0;
      assign key_narrow = 32'b0;
      logic unused_key;
      assign unused_key = &drawn_key_i;
    end
    for (genvar i = 0; i < 8; i++) begin : g_fp
      assign fp_o[32*i+:32] = fp_q[i];
    end
  endgenerate
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < 8; i++) fp_q[i] <= 32'd0;
    end else begin
      if (write) fp_q[target] <= value;
      if (key_write) fp_q[word_i[20:18]] <= key_narrow;  // the key wins if both are one register
    end
  end

  logic unused_bits;
  assign unused_bits = &{word_i[21], word_i[13], word_i[9]};

  `DLLM_ASSERT(a_f0_stays_zero, fp_q[0] == 32'd0)
endmodule
