// Further lane-wise operations: product, reciprocal or square root, maximum or minimum. Inactive lanes keep the first
// source.
`include "fault.svh"
module more_lanes #(
  parameter int VLEN = 8,
  parameter int MUL_STAGES = 1,
  parameter int RECI_STAGES = 2,
  parameter int MAX_STAGES = 4
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               multiply_valid_i,
  input  logic               root_valid_i,
  input  logic               extreme_valid_i,
  input  logic               square_root_i,  // else the reciprocal
  input  logic               smallest_i,     // else the largest
  input  logic [16*VLEN-1:0] a_i,
  input  logic [16*VLEN-1:0] b_i,
  input  logic [VLEN-1:0]    active_i,
  output logic               multiply_valid_o,
  output logic               root_valid_o,
  output logic               extreme_valid_o,
  output logic [16*VLEN-1:0] multiply_o,
  output logic [16*VLEN-1:0] root_o,
  output logic [16*VLEN-1:0] extreme_o
);
  logic [16*VLEN-1:0] products, roots, extremes;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      logic [15:0] a, b, product, reciprocal, root, key_a, key_b;
      logic take_b;
      assign a = a_i[16*i+:16];
      assign b = b_i[16*i+:16];
      fp_multiply #(.MAN(7)) i_multiply (.a_i(a), .b_i(b), .product_o(product));
      bf16_reciprocal i_reciprocal (.x_i(a), .reciprocal_o(reciprocal));
      bf16_sqrt i_sqrt (.x_i(a), .root_o(root));
      order_key i_key_a (.value_i(a), .key_o(key_a));
      order_key i_key_b (.value_i(b), .key_o(key_b));
      assign take_b = smallest_i ? key_b < key_a : key_b > key_a;  // equal: the first source
      assign products[16*i+:16] = active_i[i] ? product : a;
      assign roots[16*i+:16] = !active_i[i] ? a : square_root_i ? root : reciprocal;
      assign extremes[16*i+:16] = active_i[i] && take_b ? b : a;
    end
  endgenerate
  delay #(.WIDTH(16 * VLEN), .DEPTH(MUL_STAGES - 1)) i_products (.clk_i, .data_i(products), .data_o(multiply_o));
  delay #(.WIDTH(16 * VLEN), .DEPTH(RECI_STAGES - 1)) i_roots (.clk_i, .data_i(roots), .data_o(root_o));
  delay #(.WIDTH(16 * VLEN), .DEPTH(MAX_STAGES - 1)) i_extremes (.clk_i, .data_i(extremes), .data_o(extreme_o));
  valid_delay #(.DEPTH(MUL_STAGES - 1))
    i_multiply_valid (.clk_i, .rst_ni, .valid_i(multiply_valid_i), .valid_o(multiply_valid_o));
  valid_delay #(.DEPTH(RECI_STAGES - 1))
    i_root_valid (.clk_i, .rst_ni, .valid_i(root_valid_i), .valid_o(root_valid_o));
  valid_delay #(.DEPTH(MAX_STAGES - 1))
    i_extreme_valid (.clk_i, .rst_ni, .valid_i(extreme_valid_i), .valid_o(extreme_valid_o));
endmodule
