// Product of two numbers with 8 bits of exponent and MAN of fraction (7: BF16, 23: FP32), to nearest even, with
// subnormals; every NaN is the positive quiet one. The functional machine multiplies BF16 in FP32, which holds the
// exact 16-bit product, so there is only one rounding.
module fp_multiply #(
  parameter int MAN = 23
) (
  input  logic [MAN+8:0] a_i,
  input  logic [MAN+8:0] b_i,
  output logic [MAN+8:0] product_o
);
  /*verilator no_inline_module*/
  localparam int Significand = MAN + 1;
  logic sign, a_special, b_special, is_nan;
  logic [7:0] a_field, b_field;
  assign sign = a_i[MAN+8] ^ b_i[MAN+8];
  assign a_field = a_i[MAN+7:MAN];
  assign b_field = b_i[MAN+7:MAN];
  assign a_special = a_field == 8'hff;
  assign b_special = b_field == 8'hff;
  assign is_nan = (a_special && a_i[MAN-1:0] != '0) || (b_special && b_i[MAN-1:0] != '0) ||
                  (a_special && b_i[MAN+7:0] == '0) || (b_special && a_i[MAN+7:0] == '0);

  // value = product * 2^(-2 MAN) * 2^(ea + eb - 254)
  logic [2*Significand-1:0] product;
  logic signed [13:0] exponent;
  logic [MAN+8:0] rounded;
  assign product = {{Significand{1'b0}}, a_field != 8'd0, a_i[MAN-1:0]} *
                   {{Significand{1'b0}}, b_field != 8'd0, b_i[MAN-1:0]};
  assign exponent = $signed({6'b0, a_field == 8'd0 ? 8'd1 : a_field}) +
                    $signed({6'b0, b_field == 8'd0 ? 8'd1 : b_field}) - 14'(254 + 2 * MAN);
  fp_pack #(.WIDTH(2 * Significand), .EXP(8), .MAN(MAN)) i_pack (
    .sign_i(sign), .magnitude_i(product), .sticky_i(1'b0), .exponent_i(exponent), .packed_o(rounded)
  );

  always_comb begin
    if (is_nan) product_o = {9'h0ff, 1'b1, {(MAN - 1){1'b0}}};
    else if (a_special || b_special) product_o = {sign, 8'hff, {MAN{1'b0}}};
    else product_o = rounded;
  end
endmodule
