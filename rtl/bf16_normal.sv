// A BF16 above 0 as significand / 128 * 2^(exponent - 127), the significand in [128, 256); subnormal numbers have
// exponents down to -6. For 0 both are 0.
module bf16_normal (
  input  logic [14:0]       x_i,
  output logic [7:0]        significand_o,
  output logic signed [9:0] exponent_o
);
  logic [2:0] zeros;
  always_comb begin
    zeros = 3'd0;
    for (int i = 0; i < 7; i++) if (x_i[i]) zeros = 3'd6 - i[2:0];
    significand_o = x_i[14:7] == 8'd0 ? {x_i[6:0], 1'b0} << zeros : {1'b1, x_i[6:0]};
    exponent_o = x_i[14:7] == 8'd0 ? -$signed({7'b0, zeros}) : $signed({2'b0, x_i[14:7]});
  end
endmodule
