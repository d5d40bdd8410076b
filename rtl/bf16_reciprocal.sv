// 1/x of a BF16, correctly rounded for all arguments: a table of the significand's reciprocal with a sticky bit, and
// one rounding, whose position differs for results below 2^-126.
`include "fault.svh"
module bf16_reciprocal (
  input  logic [15:0] x_i,
  output logic [15:0] reciprocal_o
);
  /*verilator no_inline_module*/
  // x = 1.fraction * 2^(exponent - 127)
  logic hidden;
  logic [6:0] fraction;
  logic signed [9:0] exponent;
  bf16_normal i_normal (.x_i(x_i[14:0]), .significand_o({hidden, fraction}), .exponent_o(exponent));

  // 1/x = (2 / 1.fraction) * 2^(126 - exponent + 127 - 127); exactly 2 for fraction 0.
  logic [11:0] quotient;
  logic [11:0] significand;
  logic signed [9:0] result_exponent;
  bf16_reciprocal_rom i_rom (.index_i(fraction), .quotient_o(quotient));
  assign significand = fraction == 7'd0 ? 12'h800 : quotient;  // 1.10 bits and sticky
  assign result_exponent = (fraction == 7'd0 ? 10'sd254 : 10'sd253) - exponent;

  // Subnormal results: exponent 0 or -1, one or two places to the right.
  logic [13:0] shifted;
  logic up;
  logic [14:0] packed_result;
  always_comb begin
    if (result_exponent == 10'sd0) shifted = {1'b0, significand, 1'b0};
    else if (result_exponent < 10'sd0) shifted = {2'b0, significand};
    else shifted = {significand, 2'b0};
    // [13] hidden, [12:6] fraction, [5] guard, the rest sticky.
    up = shifted[5] && (shifted[4:0] != 5'd0 || shifted[6]);
    packed_result = {result_exponent > 10'sd0 ? result_exponent[7:0] : 8'd0, shifted[12:6]} + {14'b0, up};
    if (`FAULT(6) && result_exponent <= 10'sd0) packed_result = 15'd0;
  end

  logic unused_bits;
  assign unused_bits = &{hidden, shifted[13]};

  always_comb begin
    if (x_i[14:0] > 15'h7f80) reciprocal_o = x_i | 16'h0040;
    else if (x_i[14:0] == 15'h7f80) reciprocal_o = {x_i[15], 15'h0};
    else if (x_i[14:0] == 15'h0 || result_exponent >= 10'sd255) reciprocal_o = {x_i[15], 15'h7f80};
    else reciprocal_o = {x_i[15], packed_result};
  end
endmodule
