// magnitude * 2^exponent, and lost bits below it, to a floating-point number of EXP and MAN bits: one rounding to
// nearest even, with subnormals and infinities. The exponent is that of the lowest bit.
module fp_pack #(
  parameter int WIDTH = 64,
  parameter int EXP = 11,
  parameter int MAN = 52
) (
  input  logic                 sign_i,
  input  logic [WIDTH-1:0]     magnitude_i,
  input  logic                 sticky_i,
  input  logic signed [13:0]   exponent_i,
  output logic [EXP+MAN:0]     packed_o
);
  localparam int Steps = $clog2(WIDTH > MAN + 3 ? WIDTH : MAN + 3);
  localparam int Top = 1 << Steps;  // the magnitude at the top of this many bits, at least two below the last one kept
  localparam int Bias = (1 << (EXP - 1)) - 1;

  // Leading zeros in binary steps.
  logic [Top-1:0] normal;
  logic [Steps-1:0] zeros;
  always_comb begin
    normal = Top'(magnitude_i) << (Top - WIDTH);
    for (int s = Steps - 1; s >= 0; s--) begin
      zeros[s] = (normal >> (Top - (1 << s))) == '0;
      if (zeros[s]) normal = normal << (1 << s);
    end
  end

  // Biased exponent of the leading one; at or below 0 the significand is shifted right, and lost bits become sticky.
  logic signed [14:0] biased, right;
  logic [Top-1:0] shifted;
  logic lost, up;
  logic [EXP:0] field;
  logic [EXP+MAN:0] rounded;
  always_comb begin
    biased = 15'(exponent_i) + 15'(Bias + WIDTH - 1) - $signed({{(15 - Steps){1'b0}}, zeros});
    right = biased > 15'sd0 ? 15'sd0 : 15'sd1 - biased;
    shifted = normal >> right[13:0];
    lost = sticky_i || (shifted << right[13:0]) != normal;
    up = shifted[Top-2-MAN] && (lost || shifted[Top-3-MAN:0] != '0 || shifted[Top-1-MAN]);
    field = biased >= 15'((1 << EXP) - 1) ? (EXP + 1)'((1 << EXP) - 1) : biased > 15'sd0 ? biased[EXP:0] : '0;
    rounded = {field, shifted[Top-2-:MAN]} + {{(EXP + MAN){1'b0}}, up};
    if (magnitude_i == '0) packed_o = {sign_i, {(EXP + MAN){1'b0}}};
    else if (rounded[EXP+MAN:MAN] >= (EXP + 1)'((1 << EXP) - 1))
      packed_o = {sign_i, {EXP{1'b1}}, {MAN{1'b0}}};
    else packed_o = {sign_i, rounded[EXP+MAN-1:0]};
  end

  logic unused_bits;
  assign unused_bits = &{right[14], shifted[Top-1]};
endmodule
