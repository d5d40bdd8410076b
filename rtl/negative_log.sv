// -ln x of a positive normal FP64. x = 2^k m, m in [1/sqrt 2, sqrt 2). Four factors bring m to 1 + z, |z| < 2^-21, each
// so short that the products are exact; ln(1 + z) needs four terms. Factors next to 1 are 1, so that nothing cancels
// where the result is small: the error before the rounding is below 2^-74 of the result.
module negative_log (
  input  logic [63:0] x_i,
  output logic [63:0] log_o
);
  /*verilator no_inline_module*/
  localparam int W = 136;  // 128 bits of fraction
  localparam logic signed [W-1:0] Ln2 = 136'h00b17217f7d1cf79abc9e3b39803f2f6af;
  localparam logic signed [W-1:0] One = 136'h1 << 128;

  logic upper;
  logic signed [11:0] k;
  logic signed [W-1:0] m;
  assign upper = x_i[51:44] >= 8'h6a;
  assign k = $signed({1'b0, x_i[62:52]}) - (upper ? 12'sd1022 : 12'sd1023);
  assign m = upper ? {9'b0, x_i[51:0], 75'b0} | (136'h1 << 127) : {8'b0, x_i[51:0], 76'b0} | One;

  logic [8:0] factor;
  logic signed [W-1:0] log1, log2, log3, log4, z1, z2, z3, z4;
  logic signed [W+8:0] first;
  logic signed [6:0] j2, j3, j4;
  negative_log_rom i_rom (
    .index_i(m[128:121]), .factor_o(factor), .log_o(log1), .j11_i(j2), .log11_o(log2), .j16_i(j3), .log16_o(log3),
    .j21_i(j4), .log21_o(log4)
  );
  assign first = $signed({9'b0, m}) * $signed({136'b0, factor});
  assign z1 = first[W+7:8] - One;

  // z to the nearest multiple j of 2^-SHIFT, and (1 + z)(1 - j 2^-SHIFT) - 1.
  function automatic logic signed [6:0] nearest(input logic signed [W-1:0] z, input int shift);
    nearest = 7'((z + (136'sh1 <<< (127 - shift))) >>> (128 - shift));
  endfunction
  function automatic logic signed [W-1:0] reduced(input logic signed [W-1:0] z, input logic signed [6:0] j,
                                                  input int shift);
    reduced = z - (W'(j) <<< (128 - shift)) - ((z * W'(j)) >>> shift);
  endfunction
  assign j2 = nearest(z1, 11);
  assign z2 = reduced(z1, j2, 11);
  assign j3 = nearest(z2, 16);
  assign z3 = reduced(z2, j3, 16);
  assign j4 = nearest(z3, 21);
  assign z4 = reduced(z3, j4, 21);

  // z - z^2 / 2 + z^3 / 3 - z^4 / 4
  localparam int V = 2 * W;
  logic signed [V-1:0] square, cube, fourth, third;
  logic signed [W-1:0] series, total;
  assign square = (V'(z4) * V'(z4)) >>> 128;
  assign cube = (square * V'(z4)) >>> 128;
  assign fourth = (cube * V'(z4)) >>> 128;
  assign third = (cube * 272'sh5555555555555555) >>> 64;
  assign series = z4 - square[W:1] + third[W-1:0] - fourth[W+1:2];
  assign total = log1 + log2 + log3 + log4 - series - W'(k) * Ln2;

  logic [W-1:0] magnitude;
  assign magnitude = total[W-1] ? -total : total;
  fp_pack #(.WIDTH(W), .EXP(11), .MAN(52)) i_pack (
    .sign_i(total[W-1]), .magnitude_i(magnitude), .sticky_i(1'b0), .exponent_i(-14'sd128), .packed_o(log_o)
  );

  logic unused_bits;
  assign unused_bits = &{x_i[63], first, square, fourth, third};
endmodule
