// FP32 to FP64, exactly; a NaN becomes the positive quiet one.
module f32_widen (
  input  logic [31:0] value_i,
  output logic [63:0] wide_o
);
  logic [63:0] packed_value;
  fp_pack #(.WIDTH(24), .EXP(11), .MAN(52)) i_pack (
    .sign_i(value_i[31]), .magnitude_i({value_i[30:23] != 8'd0, value_i[22:0]}), .sticky_i(1'b0),
    .exponent_i($signed({6'b0, value_i[30:23] == 8'd0 ? 8'd1 : value_i[30:23]}) - 14'sd150), .packed_o(packed_value)
  );
  always_comb begin
    if (value_i[30:23] != 8'hff) wide_o = packed_value;
    else wide_o = value_i[22:0] != '0 ? 64'h7ff8000000000000 : {value_i[31], 63'h7ff0000000000000};
  end
endmodule
