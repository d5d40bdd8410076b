// IEEE addition of {sign, 8 bits of exponent, MAN of fraction}: FP32 for 23, BF16 for 7. To nearest even, with
// subnormals; every NaN is the positive quiet one without payload.
//
// In the functional machine BF16 sums go through FP32. Two roundings equal one, as 24 >= 2 * 8 + 2 (Figueroa, "When is
// double rounding innocuous?", 1995), so this rounds once.
`include "fault.svh"
module fp_add #(
  parameter int MAN = 23
) (
  input  logic [MAN+8:0] a_i,
  input  logic [MAN+8:0] b_i,
  output logic [MAN+8:0] sum_o
);
  /*verilator no_inline_module*/
  localparam int W = MAN + 5;  // carry, hidden one, fraction, guard, round, sticky

  // Order by magnitude.
  logic swap, subtract;
  logic [MAN+8:0] big, less;
  logic [7:0] e_big, e_small, distance;
  assign swap = b_i[MAN+7:0] > a_i[MAN+7:0];
  assign {big, less} = swap ? {b_i, a_i} : {a_i, b_i};
  assign subtract = big[MAN+8] ^ less[MAN+8];
  assign e_big = big[MAN+7:MAN] == 8'd0 ? 8'd1 : big[MAN+7:MAN];
  assign e_small = less[MAN+7:MAN] == 8'd0 ? 8'd1 : less[MAN+7:MAN];
  assign distance = e_big - e_small;

  // Align; shifted-out bits are kept in the lowest bit.
  logic [W-1:0] significand, addend, shifted, kept, total;
  logic sticky;
  assign significand = {1'b0, big[MAN+7:MAN] != 8'd0, big[MAN-1:0], 3'b0};
  assign addend = {1'b0, less[MAN+7:MAN] != 8'd0, less[MAN-1:0], 3'b0};
  assign shifted = addend >> distance;
  assign kept = shifted << distance;
  assign sticky = kept != addend && !`FAULT(3);
  assign total = subtract ? significand - {shifted[W-1:1], shifted[0] | sticky}
                          : significand + {shifted[W-1:1], shifted[0] | sticky};

  // Leading zeros below the carry, in binary steps.
  logic [31:0] z16, z8, z4;
  logic [2:0] z2;
  logic [4:0] zeros;
  always_comb begin
    z16 = {total[W-2:0], {(33 - W){1'b1}}};
    zeros[4] = z16[31:16] == '0;
    z8 = zeros[4] ? z16 << 16 : z16;
    zeros[3] = z8[31:24] == '0;
    z4 = zeros[3] ? z8 << 8 : z8;
    zeros[2] = z4[31:28] == '0;
    z2 = zeros[2] ? z4[27:25] : z4[31:29];
    zeros[1] = z2[2:1] == '0;
    zeros[0] = !(zeros[1] ? z2[0] : z2[2]);
  end

  // Normalise: right by one after a carry, else left, but not beyond the smallest exponent.
  logic [7:0] limit;
  logic [4:0] shift;
  logic [W-1:0] normal;
  logic [8:0] exponent;
  assign limit = e_big - 8'd1;
  assign shift = {3'b0, zeros} < limit ? zeros : limit[4:0];
  assign normal = total[W-1] ? {1'b0, total[W-1:2], total[1] | total[0]} : total << shift;
  assign exponent = total[W-1] ? {1'b0, e_big} + 9'd1 : {1'b0, e_big} - {4'b0, shift};

  // Round. A carry out of the fraction raises the exponent, out of the largest one to infinity.
  logic up;
  logic [MAN+8:0] packed_sum;
  assign up = normal[2] && (normal[1] || normal[0] || normal[3]);
  assign packed_sum = {normal[W-2] ? exponent : 9'd0, normal[W-3:3]} + {{(MAN + 8){1'b0}}, up};

  logic unused_bits;
  assign unused_bits = &z4[24:0];

  logic is_nan, is_infinite;
  assign is_nan = big[MAN+7:0] > {8'hff, {MAN{1'b0}}} ||
                  (subtract && big[MAN+7:0] == {8'hff, {MAN{1'b0}}} && less[MAN+7:0] == {8'hff, {MAN{1'b0}}});
  assign is_infinite = big[MAN+7:MAN] == 8'hff || packed_sum[MAN+8:MAN] >= 9'h0ff;

  always_comb begin
    if (is_nan) sum_o = {9'h0ff, 1'b1, {(MAN - 1){1'b0}}};
    else if (is_infinite) sum_o = {big[MAN+8], 8'hff, {MAN{1'b0}}};
    else if (total == '0) sum_o = {a_i[MAN+8] & b_i[MAN+8], {(MAN + 8){1'b0}}};
    else sum_o = {big[MAN+8], packed_sum[MAN+7:0]};
  end
endmodule
