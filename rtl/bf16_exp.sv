// e^x of a BF16, x clamped to [-88, 88], correctly rounded for all 65,536 arguments (the co-simulation tests each). y =
// x log2 e in fixed point; 2^(fraction of y) by linear interpolation; a short list of arguments for which this would
// round wrongly.
`include "fault.svh"
module bf16_exp (
  input  logic [15:0] x_i,
  output logic [15:0] exp_o
);
  /*verilator no_inline_module*/
  localparam logic [14:0] Log2e = 15'd23637;  // 2^14 log2 e
  localparam logic [14:0] Clamp = 15'h42b0;   // 88

  logic is_nan, is_small;
  logic [14:0] magnitude;
  assign is_nan = x_i[14:0] > 15'h7f80;
  assign is_small = x_i[14:7] < 8'd118;  // below 2^-9: 1
  assign magnitude = x_i[14:0] > Clamp && !`FAULT(4) ? Clamp : x_i[14:0];

  // 8 x 15 bits, then 2^(e + 9), e + 9 in 0..15: 7 bits above the binary point and 30 below, of which 16 are kept.
  logic [3:0] raise;
  logic [22:0] product;
  logic [37:0] wide;
  logic [23:0] y;
  assign raise = magnitude[10:7] - 4'd6;  // 118 mod 16
  assign product = {15'b0, 1'b1, magnitude[6:0]} * {8'b0, Log2e};
  assign wide = {15'b0, product} << raise;
  assign y = x_i[15] ? -{1'b0, wide[36:14]} : {1'b0, wide[36:14]};

  logic [14:0] start;
  logic [9:0] rise;
  logic exception;
  logic [14:0] exceptional;
  bf16_exp_rom i_rom (
    .index_i(y[15:10]), .start_o(start), .rise_o(rise),
    .argument_i({x_i[15], magnitude}), .exception_o(exception), .result_o(exceptional)
  );

  logic [19:0] step;
  logic [15:0] chord;
  logic [14:0] rounded;
  assign step = {10'b0, rise} * {10'b0, y[9:0]};
  assign chord = {1'b1, start} + {6'b0, step[19:10]};
  // Rounding may carry into the exponent: the hidden one is added to the biased exponent minus one.
  assign rounded = {y[23:16] + 8'd126, 7'b0} + {7'b0, chord[15:8]} + {14'b0, chord[7]};

  logic unused_bits;
  assign unused_bits = &{wide[37], wide[13:0], step[9:0], chord[6:0]};

  always_comb begin
    if (is_nan) exp_o = x_i | 16'h0040;
    else if (is_small) exp_o = 16'h3f80;
    else if (exception && !`FAULT(5)) exp_o = {1'b0, exceptional};
    else exp_o = {1'b0, rounded};
  end
endmodule
