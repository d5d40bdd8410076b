// Product of two BF16, to nearest even, with subnormals; a NaN result is the positive quiet one. The functional machine
// goes through FP32, which holds the exact 16-bit product, so there is only one rounding.
module bf16_multiply (
  input  logic [15:0] a_i,
  input  logic [15:0] b_i,
  output logic [15:0] product_o
);
  /*verilator no_inline_module*/
  logic sign, a_special, b_special, is_nan;
  logic [15:0] product;
  assign sign = a_i[15] ^ b_i[15];
  assign a_special = a_i[14:7] == 8'hff;
  assign b_special = b_i[14:7] == 8'hff;
  assign is_nan = (a_special && a_i[6:0] != 7'd0) || (b_special && b_i[6:0] != 7'd0) ||
                  (a_special && b_i[14:0] == 15'd0) || (b_special && a_i[14:0] == 15'd0);
  assign product = {8'b0, a_i[14:7] != 8'd0, a_i[6:0]} * {8'b0, b_i[14:7] != 8'd0, b_i[6:0]};

  // value = product * 2^-14 * 2^(ea + eb - 254)
  logic signed [11:0] exponent;
  logic [15:0] rounded;
  assign exponent = $signed({4'b0, a_i[14:7] == 8'd0 ? 8'd1 : a_i[14:7]}) +
                    $signed({4'b0, b_i[14:7] == 8'd0 ? 8'd1 : b_i[14:7]}) - 12'sd268;
  fixed_to_bf16 #(.WIDTH(17)) i_round (.value_i({1'b0, product}), .exponent_i(exponent), .bf16_o(rounded));

  logic unused_bit;
  assign unused_bit = rounded[15];

  always_comb begin
    if (is_nan) product_o = 16'h7fc0;
    else if (a_special || b_special) product_o = {sign, 15'h7f80};
    else product_o = {sign, rounded[14:0]};
  end
endmodule
