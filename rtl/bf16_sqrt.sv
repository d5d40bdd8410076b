// Square root of a BF16, correctly rounded for all arguments: nine bits of root by digit recurrence, of which eight are
// kept. A root is never half way between two results (its square would have a bit that no argument has), so the ninth
// bit alone decides the rounding. Results are normal numbers, or the argument itself.
`include "fault.svh"
module bf16_sqrt (
  input  logic [15:0] x_i,
  output logic [15:0] root_o
);
  /*verilator no_inline_module*/
  logic [7:0] significand;
  logic signed [9:0] exponent;
  bf16_normal i_normal (.x_i(x_i[14:0]), .significand_o(significand), .exponent_o(exponent));

  // An even power of two is taken out: the unbiased exponent is odd where the biased one is even.
  logic odd, smaller;
  logic [17:0] radicand;
  logic [8:0] root, trial;
  logic [17:0] square;
  assign odd = !exponent[0];
  assign radicand = odd ? {significand, 10'b0} : {1'b0, significand, 9'b0};
  always_comb begin
    root = 9'd0;
    for (int bit_index = 8; bit_index >= 0; bit_index--) begin
      trial = root | (9'd1 << bit_index);
      square = {9'b0, trial} * {9'b0, trial};
      smaller = square <= radicand;
      if (smaller) root = trial;
    end
  end

  logic signed [9:0] half;
  logic [14:0] packed_root;
  // floor((exponent - 127) / 2) + 127
  assign half = (exponent - 10'sd127) >>> 1;
  assign packed_root = {half[7:0] + 8'd127, root[7:1]} + {14'b0, root[0] && !`FAULT(15)};

  logic unused_bits;
  assign unused_bits = &{root[8], half[9:8]};

  always_comb begin
    if (x_i[14:0] > 15'h7f80) root_o = x_i | 16'h0040;
    else if (x_i[14:0] == 15'h0 || x_i == 16'h7f80) root_o = x_i;
    else if (x_i[15]) root_o = 16'h7fc0;
    else root_o = {1'b0, packed_root};
  end
endmodule
