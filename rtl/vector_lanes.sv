// Lane-wise operations: sums and differences, and exponentials. Inactive lanes keep the first source.
module vector_lanes #(
  parameter int VLEN = 8,
  parameter int ADD_STAGES = 2,
  parameter int EXP_STAGES = 1
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               add_valid_i,
  input  logic               exp_valid_i,
  input  logic               negate_a_i,
  input  logic               negate_b_i,
  input  logic [16*VLEN-1:0] a_i,
  input  logic [16*VLEN-1:0] b_i,
  input  logic [VLEN-1:0]    active_i,
  output logic               add_valid_o,
  output logic               exp_valid_o,
  output logic [16*VLEN-1:0] add_o,
  output logic [16*VLEN-1:0] exp_o
);
  logic [16*VLEN-1:0] sums, powers;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      logic [15:0] sum, power;
      fp_add #(.MAN(7)) i_add (
        .a_i({a_i[16*i+15] ^ negate_a_i, a_i[16*i+:15]}), .b_i({b_i[16*i+15] ^ negate_b_i, b_i[16*i+:15]}), .sum_o(sum)
      );
      bf16_exp i_exp (.x_i(a_i[16*i+:16]), .exp_o(power));
      assign sums[16*i+:16] = active_i[i] ? sum : a_i[16*i+:16];
      assign powers[16*i+:16] = active_i[i] ? power : a_i[16*i+:16];
    end
  endgenerate
  delay #(.WIDTH(16 * VLEN), .DEPTH(ADD_STAGES - 1)) i_sums (.clk_i, .data_i(sums), .data_o(add_o));
  delay #(.WIDTH(16 * VLEN), .DEPTH(EXP_STAGES - 1)) i_powers (.clk_i, .data_i(powers), .data_o(exp_o));
  valid_delay #(.DEPTH(ADD_STAGES - 1)) i_add_valid (.clk_i, .rst_ni, .valid_i(add_valid_i), .valid_o(add_valid_o));
  valid_delay #(.DEPTH(EXP_STAGES - 1)) i_exp_valid (.clk_i, .rst_ni, .valid_i(exp_valid_i), .valid_o(exp_valid_o));
endmodule
