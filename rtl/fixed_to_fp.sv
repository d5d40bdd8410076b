// value * 2^exponent to {sign, 8 bits of exponent, MAN of fraction} with one rounding to nearest even, with subnormals;
// 0 for 0. MAN 7 is BF16, 23 is FP32. The exponent is that of the lowest bit.
module fixed_to_fp #(
  parameter int WIDTH = 32,
  parameter int MAN = 7
) (
  input  logic signed [WIDTH-1:0] value_i,
  input  logic signed [11:0]      exponent_i,
  output logic [MAN+8:0]          fp_o
);
  logic [WIDTH-1:0] magnitude;
  assign magnitude = value_i[WIDTH-1] ? -value_i : value_i;
  fp_pack #(.WIDTH(WIDTH), .EXP(8), .MAN(MAN)) i_pack (
    .sign_i(value_i[WIDTH-1]), .magnitude_i(magnitude), .sticky_i(1'b0), .exponent_i(14'(exponent_i)), .packed_o(fp_o)
  );
endmodule
