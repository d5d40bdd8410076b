// value * 2^exponent to BF16 with one rounding to nearest even; 0 for 0. The exponent is that of the lowest bit.
module fixed_to_bf16 #(
  parameter int WIDTH = 32
) (
  input  logic signed [WIDTH-1:0] value_i,
  input  logic signed [11:0]      exponent_i,
  output logic [15:0]             bf16_o
);
  fixed_to_fp #(.WIDTH(WIDTH), .MAN(7)) i_round (.value_i, .exponent_i, .fp_o(bf16_o));
endmodule
