// A BF16 divided by a positive finite FP64: FP64, to nearest even.
module f64_quotient (
  input  logic [15:0] numerator_i,
  input  logic [63:0] denominator_i,
  output logic [63:0] quotient_o
);
  logic [117:0] numerator, denominator, quotient, remainder;
  logic signed [13:0] exponent;
  logic [63:0] packed_quotient;
  assign numerator = {numerator_i[14:7] != 8'd0, numerator_i[6:0], 110'b0};
  assign denominator = {65'b0, denominator_i[62:52] != 11'd0, denominator_i[51:0]};
  assign quotient = numerator / denominator;
  assign remainder = numerator % denominator;
  // n 2^(en - 134) / (d 2^(ed - 1075)), n 110 bits to the left.
  assign exponent = $signed({6'b0, numerator_i[14:7] == 8'd0 ? 8'd1 : numerator_i[14:7]}) -
                    $signed({3'b0, denominator_i[62:52] == 11'd0 ? 11'd1 : denominator_i[62:52]}) + 14'sd831;
  fp_pack #(.WIDTH(118), .EXP(11), .MAN(52)) i_pack (
    .sign_i(numerator_i[15]), .magnitude_i(quotient), .sticky_i(remainder != '0), .exponent_i(exponent),
    .packed_o(packed_quotient)
  );
  always_comb begin
    if (numerator_i[14:7] != 8'hff) quotient_o = packed_quotient;
    else quotient_o = numerator_i[6:0] != 7'd0 ? 64'h7ff8000000000000 : {numerator_i[15], 63'h7ff0000000000000};
  end

  logic unused_bit;
  assign unused_bit = denominator_i[63];
endmodule
