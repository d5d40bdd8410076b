// An MX element with its scale to BF16, one rounding; the scale 255 and NaN codes give the quiet NaN. ELEMENT and RULE
// as in mx_formats.svh; 7 (BF16) is copied.
module mx_to_bf16 #(
  parameter int ELEMENT = 1,
  parameter int RULE = 0,
  localparam int Bits = ELEMENT == 7 ? 16 : ELEMENT == 0 || ELEMENT == 2 ? 4 : ELEMENT == 3 || ELEMENT == 4 ? 6 : 8
) (
  input  logic [Bits-1:0] code_i,
  input  logic [7:0]      scale_i,
  output logic [15:0]     bf16_o
);
  /*verilator no_inline_module*/
  `include "mx_formats.svh"
  generate
    if (ELEMENT == 7) begin : g_copy
      assign bf16_o = code_i;
      logic unused_scale;
      assign unused_scale = &scale_i;
    end else begin : g_scaled
      localparam int Width = mx_width(ELEMENT);
      logic signed [Width-1:0] fixed;
      logic special;
      logic [15:0] rounded;
      mx_decode #(.ELEMENT(ELEMENT)) i_decode (.code_i, .fixed_o(fixed), .special_o(special));
      fixed_to_fp #(.WIDTH(Width + 1)) i_round (
        .value_i({fixed[Width-1], fixed}),
        .exponent_i($signed({4'b0, scale_i}) - 12'(127 + mx_fraction(ELEMENT, RULE))), .fp_o(rounded)
      );
      // Minus zero keeps its sign.
      assign bf16_o = scale_i == 8'hff || special ? 16'h7fc0
                      : {rounded[15] || (ELEMENT > 1 && code_i[Bits-1]), rounded[14:0]};
    end
  endgenerate
endmodule
