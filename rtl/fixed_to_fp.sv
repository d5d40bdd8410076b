// value * 2^exponent to {sign, 8 bits of exponent, MAN of fraction} with one rounding to nearest even, with subnormals;
// 0 for 0. The exponent is that of the lowest bit.
module fixed_to_fp #(
  parameter int WIDTH = 32,
  parameter int MAN = 7
) (
  input  logic signed [WIDTH-1:0] value_i,
  input  logic signed [11:0]      exponent_i,
  output logic [MAN+8:0]          fp_o
);
  localparam int Steps = $clog2(WIDTH > MAN + 3 ? WIDTH : MAN + 3);
  localparam int Top = 1 << Steps;  // the magnitude at the top of this many bits, at least two below the last one kept

  logic [WIDTH-1:0] magnitude;
  assign magnitude = value_i[WIDTH-1] ? -value_i : value_i;

  // Leading zeros in binary steps.
  logic [Top-1:0] normal;
  logic [Steps-1:0] zeros;
  always_comb begin
    normal = Top'(magnitude) << (Top - WIDTH);
    for (int s = Steps - 1; s >= 0; s--) begin
      zeros[s] = (normal >> (Top - (1 << s))) == '0;
      if (zeros[s]) normal = normal << (1 << s);
    end
  end

  // Biased exponent of the leading one; at or below 0 the significand is shifted right, and lost bits become sticky.
  logic signed [11:0] biased, right;
  logic [Top-1:0] shifted;
  logic lost, up;
  logic [8:0] field;
  logic [MAN+8:0] packed_result;
  logic unused_bit;
  assign unused_bit = right[11];
  always_comb begin
    biased = exponent_i + 12'sd127 + 12'(WIDTH - 1) - $signed({{(12 - Steps){1'b0}}, zeros});
    right = biased > 12'sd0 ? 12'sd0 : 12'sd1 - biased;
    shifted = normal >> right[10:0];
    lost = (shifted << right[10:0]) != normal;
    up = shifted[Top-MAN-2] && (lost || shifted[Top-MAN-3:0] != '0 || shifted[Top-MAN-1]);
    field = biased > 12'sd255 ? 9'd255 : biased > 12'sd0 ? biased[8:0] : 9'd0;
    packed_result = {field, shifted[Top-2:Top-MAN-1]} + {{(MAN + 8){1'b0}}, up};
    if (magnitude == '0) fp_o = '0;
    else if (packed_result[MAN+8:MAN] >= 9'd255) fp_o = {value_i[WIDTH-1], 8'hff, {MAN{1'b0}}};
    else fp_o = {value_i[WIDTH-1], packed_result[MAN+7:0]};
  end
endmodule
