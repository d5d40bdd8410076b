// BF16 to MX: a block's shared exponent from its largest magnitude, and its elements to nearest even, saturated. A
// block with a NaN or an infinity gets the scale 255 and codes 0. For ELEMENT and RULE see mx_formats.svh.
//
//   lanes --> |max| --> shared exponent --> scale
//     |                       |
//     +--> normalise --> >> distance, round, saturate --> code
module mx_encode #(
  parameter int ELEMENT = 1,
  parameter int RULE = 0,
  parameter int BLOCK = 8,
  localparam int Bits = ELEMENT == 0 || ELEMENT == 2 ? 4 : ELEMENT == 3 || ELEMENT == 4 ? 6 : 8
) (
  input  logic [16*BLOCK-1:0]   lanes_i,
  output logic [Bits*BLOCK-1:0] codes_o,
  output logic [7:0]            scale_o,
  output logic                  zero_o,  // all codes are
  output logic                  nan_o
);
  /*verilator no_inline_module*/
  `include "mx_formats.svh"
  localparam bit Integer = ELEMENT <= 1;
  localparam int Man = ELEMENT == 2 ? 1 : ELEMENT == 4 ? 2 : 3;
  localparam int Bias = ELEMENT == 4 ? 3 : ELEMENT == 5 ? 7 : 1;
  localparam int Emax = Integer ? 0 : ELEMENT == 4 ? 4 : ELEMENT == 5 ? 8 : 2;
  localparam int MaxBody = ELEMENT == 2 ? 7 : ELEMENT == 5 ? 126 : 31;
  localparam int Fraction = mx_fraction(ELEMENT, RULE);
  localparam int High = ELEMENT == 0 ? 7 : 127;

  // A magnitude as 1.m * 2^(floor - 7), normalised; 0 stays 0.
  function automatic logic [7:0] significand(input logic [14:0] x);
    logic [7:0] s;
    s = {x[14:7] != 8'd0, x[6:0]};
    for (int i = 0; i < 7; i++) if (!s[7]) s = s << 1;
    significand = s;
  endfunction
  function automatic logic signed [10:0] floor_log2(input logic [14:0] x);
    logic [7:0] s;
    logic signed [10:0] e;
    s = {x[14:7] != 8'd0, x[6:0]};
    e = $signed({3'b0, x[14:7] == 8'd0 ? 8'd1 : x[14:7]}) - 11'sd127;
    for (int i = 0; i < 7; i++)
      if (!s[7]) begin
        s = s << 1;
        e = e - 11'sd1;
      end
    floor_log2 = e;
  endfunction

  logic [14:0] top;
  always_comb begin
    top = '0;
    for (int i = 0; i < BLOCK; i++) if (lanes_i[16*i+:15] > top) top = lanes_i[16*i+:15];
  end
  logic signed [10:0] wanted, shared;
  logic ceiling;
  assign ceiling = Integer && RULE != 0 && (significand(top) & 8'h7f) != 8'd0;
  assign wanted = floor_log2(top) + $signed({10'b0, ceiling}) - 11'(Emax);
  assign shared = wanted < -11'sd127 ? -11'sd127 : wanted > 11'sd127 ? 11'sd127 : wanted;
  assign nan_o = top[14:7] == 8'hff;
  assign scale_o = nan_o ? 8'hff : top == '0 ? 8'h00 : 8'(shared + 11'sd127);
  logic no_magnitude;
  assign zero_o = codes_o == '0 || (!Integer && no_magnitude);

  // Rounds s >> distance to nearest even; distance is not negative.
  function automatic logic [8:0] rounded(input logic [7:0] s, input logic signed [10:0] distance);
    logic [17:0] wide;
    wide = {s, 10'b0} >> distance[3:0];
    if (distance > 11'sd9) rounded = 9'd0;
    else rounded = {1'b0, wide[17:10]} + {8'b0, wide[9] && (wide[8:0] != 9'd0 || wide[10])};
  endfunction

  always_comb begin
    no_magnitude = 1'b1;
    for (int i = 0; i < BLOCK; i++) if (codes_o[Bits*i+:Bits-1] != '0) no_magnitude = 1'b0;
  end

  generate
    for (genvar i = 0; i < BLOCK; i++) begin : g_lane
      logic [14:0] x;
      logic negative, none;
      logic signed [10:0] exponent, floor;
      logic [8:0] q;
      assign x = lanes_i[16*i+:15];
      assign negative = lanes_i[16*i+15];
      assign floor = floor_log2(x);
      assign none = nan_o || top == '0;
      if (Integer) begin : g_integer
        logic [Bits-1:0] saturated;
        assign exponent = shared - 11'(Fraction) - (floor - 11'sd7);
        assign q = rounded(significand(x), exponent);
        assign saturated = q <= 9'(High) ? Bits'(q) : Bits'(negative && RULE == 1 ? High + 1 : High);
        assign codes_o[Bits*i+:Bits] = none ? '0 : negative ? -saturated : saturated;
      end else begin : g_float
        logic signed [10:0] relative;
        logic [11:0] body;
        assign relative = floor - shared;
        assign exponent = relative < 11'(1 - Bias) ? 11'(1 - Bias) : relative;
        assign q = rounded(significand(x), 11'(7 - Man) + exponent - relative);
        assign body = (12'(exponent + 11'(Bias - 1)) << Man) + {3'b0, q};
        assign codes_o[Bits*i+:Bits] = none ? '0 : x == '0 ? {negative, {(Bits - 1){1'b0}}}
                                       : {negative, body > 12'(MaxBody) ? (Bits - 1)'(MaxBody) : body[Bits-2:0]};
      end
    end
  endgenerate
endmodule
