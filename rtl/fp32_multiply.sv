// Product of two FP32, to nearest even, with subnormals; a NaN result is the positive quiet one without payload.
module fp32_multiply (
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] product_o
);
  /*verilator no_inline_module*/
  logic sign, a_special, b_special, is_nan;
  logic [47:0] product;
  assign sign = a_i[31] ^ b_i[31];
  assign a_special = a_i[30:23] == 8'hff;
  assign b_special = b_i[30:23] == 8'hff;
  assign is_nan = (a_special && a_i[22:0] != 23'd0) || (b_special && b_i[22:0] != 23'd0) ||
                  (a_special && b_i[30:0] == 31'd0) || (b_special && a_i[30:0] == 31'd0);
  assign product = {24'b0, a_i[30:23] != 8'd0, a_i[22:0]} * {24'b0, b_i[30:23] != 8'd0, b_i[22:0]};

  // value = product * 2^-46 * 2^(ea + eb - 254)
  logic signed [11:0] exponent;
  logic [31:0] rounded;
  assign exponent = $signed({4'b0, a_i[30:23] == 8'd0 ? 8'd1 : a_i[30:23]}) +
                    $signed({4'b0, b_i[30:23] == 8'd0 ? 8'd1 : b_i[30:23]}) - 12'sd300;
  fixed_to_fp #(.WIDTH(49), .MAN(23)) i_round (.value_i({1'b0, product}), .exponent_i(exponent), .fp_o(rounded));

  logic unused_bit;
  assign unused_bit = rounded[31];

  always_comb begin
    if (is_nan) product_o = 32'h7fc00000;
    else if (a_special || b_special) product_o = {sign, 31'h7f800000};
    else product_o = {sign, rounded[30:0]};
  end
endmodule
