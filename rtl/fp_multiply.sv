// Product of two FP32, to nearest even, with subnormals; every NaN is the positive quiet one.
module fp_multiply (
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  output logic [31:0] product_o
);
  /*verilator no_inline_module*/
  logic sign, a_special, b_special, is_nan;
  assign sign = a_i[31] ^ b_i[31];
  assign a_special = a_i[30:23] == 8'hff;
  assign b_special = b_i[30:23] == 8'hff;
  assign is_nan = (a_special && a_i[22:0] != 23'd0) || (b_special && b_i[22:0] != 23'd0) ||
                  (a_special && b_i[30:0] == 31'd0) || (b_special && a_i[30:0] == 31'd0);

  // value = product * 2^-46 * 2^(ea + eb - 254)
  logic [47:0] product;
  logic signed [9:0] exponent;
  assign product = {24'b0, a_i[30:23] != 8'd0, a_i[22:0]} * {24'b0, b_i[30:23] != 8'd0, b_i[22:0]};
  assign exponent = $signed({2'b0, a_i[30:23] == 8'd0 ? 8'd1 : a_i[30:23]}) +
                    $signed({2'b0, b_i[30:23] == 8'd0 ? 8'd1 : b_i[30:23]});

  // Leading zeros in binary steps, on 64 bits.
  logic [63:0] normal;
  logic [5:0] zeros;
  always_comb begin
    normal = {product, 16'b0};
    for (int s = 5; s >= 0; s--) begin
      zeros[s] = (normal >> (64 - (1 << s))) == '0;
      if (zeros[s]) normal = normal << (1 << s);
    end
  end

  // Biased exponent of the leading one; at or below 0 the significand is shifted right, and lost bits become sticky.
  logic signed [10:0] biased, right;
  logic [63:0] shifted;
  logic lost, up;
  logic [8:0] field;
  logic [31:0] packed_result;
  assign biased = {exponent[9], exponent} - 11'sd126 - $signed({5'b0, zeros});
  assign right = biased > 11'sd0 ? 11'sd0 : 11'sd1 - biased;
  assign shifted = normal >> right[9:0];
  assign lost = (shifted << right[9:0]) != normal;
  assign up = shifted[39] && (lost || shifted[38:0] != '0 || shifted[40]);
  assign field = biased > 11'sd255 ? 9'd255 : biased > 11'sd0 ? biased[8:0] : 9'd0;
  assign packed_result = {field, shifted[62:40]} + {31'b0, up};

  logic unused_bits;
  assign unused_bits = &{right[10], shifted[63]};

  always_comb begin
    if (is_nan) product_o = 32'h7fc00000;
    else if (a_special || b_special || packed_result[31:23] >= 9'd255) product_o = {sign, 31'h7f800000};
    else if (product == '0) product_o = {sign, 31'b0};
    else product_o = {sign, packed_result[30:0]};
  end
endmodule
