// FP64 to a number with 8 bits of exponent and MAN of fraction: FP32 for 23, BF16 for 7. One rounding, to nearest even;
// a NaN becomes the positive quiet one.
module f64_narrow #(
  parameter int MAN = 23
) (
  input  logic [63:0]    value_i,
  output logic [MAN+8:0] narrow_o
);
  logic [MAN+8:0] rounded;
  fp_pack #(.WIDTH(53), .EXP(8), .MAN(MAN)) i_pack (
    .sign_i(value_i[63]), .magnitude_i({value_i[62:52] != 11'd0, value_i[51:0]}), .sticky_i(1'b0),
    .exponent_i($signed({3'b0, value_i[62:52] == 11'd0 ? 11'd1 : value_i[62:52]}) - 14'sd1075), .packed_o(rounded)
  );
  always_comb begin
    if (value_i[62:52] != 11'h7ff) narrow_o = rounded;
    else if (value_i[51:0] != '0) narrow_o = {9'h0ff, 1'b1, {(MAN - 1){1'b0}}};
    else narrow_o = {value_i[63], 8'hff, {MAN{1'b0}}};
  end
endmodule
