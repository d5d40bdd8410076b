// IEEE addition of FP64, to nearest even; every NaN is the positive quiet one.
module f64_add (
  input  logic [63:0] a_i,
  input  logic [63:0] b_i,
  output logic [63:0] sum_o
);
  logic swap, subtract, sticky;
  logic [63:0] big, less, packed_sum;
  logic [10:0] e_big, e_less, distance;
  logic [56:0] significand, addend, shifted, total;
  assign swap = b_i[62:0] > a_i[62:0];
  assign {big, less} = swap ? {b_i, a_i} : {a_i, b_i};
  assign subtract = big[63] ^ less[63];
  assign e_big = big[62:52] == 11'd0 ? 11'd1 : big[62:52];
  assign e_less = less[62:52] == 11'd0 ? 11'd1 : less[62:52];
  assign distance = e_big - e_less;
  assign significand = {1'b0, big[62:52] != 11'd0, big[51:0], 3'b0};
  assign addend = {1'b0, less[62:52] != 11'd0, less[51:0], 3'b0};
  assign shifted = addend >> distance;
  assign sticky = (shifted << distance) != addend;
  assign total = subtract ? significand - {shifted[56:1], shifted[0] | sticky}
                          : significand + {shifted[56:1], shifted[0] | sticky};
  fp_pack #(.WIDTH(57), .EXP(11), .MAN(52)) i_pack (
    .sign_i(big[63]), .magnitude_i(total), .sticky_i(1'b0), .exponent_i($signed({3'b0, e_big}) - 14'sd1078),
    .packed_o(packed_sum)
  );
  always_comb begin
    if (big[62:0] > 63'h7ff0000000000000 || (subtract && less[62:0] == 63'h7ff0000000000000))
      sum_o = 64'h7ff8000000000000;
    else if (big[62:52] == 11'h7ff) sum_o = big;
    else if (total == '0) sum_o = {a_i[63] & b_i[63], 63'b0};
    else sum_o = packed_sum;
  end
endmodule
