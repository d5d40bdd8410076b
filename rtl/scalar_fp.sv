// The scalar floating-point unit: one cycle each.
module scalar_fp (
  input  logic [5:0]  op_i,
  input  logic [15:0] a_i,
  input  logic [15:0] b_i,
  output logic [15:0] result_o
);
  logic [15:0] sum, product, power, reciprocal, root, key_a, key_b;
  fp_add #(.MAN(7)) i_add (.a_i, .b_i({b_i[15] ^ (op_i == dllm_isa_pkg::OP_S_SUB_FP), b_i[14:0]}), .sum_o(sum));
  fp_multiply #(.MAN(7)) i_multiply (.a_i, .b_i, .product_o(product));
  bf16_exp i_exp (.x_i(a_i), .exp_o(power));
  bf16_reciprocal i_reciprocal (.x_i(a_i), .reciprocal_o(reciprocal));
  bf16_sqrt i_sqrt (.x_i(a_i), .root_o(root));
  order_key i_key_a (.value_i(a_i), .key_o(key_a));
  order_key i_key_b (.value_i(b_i), .key_o(key_b));

  always_comb begin
    case (op_i)
      dllm_isa_pkg::OP_S_ADD_FP, dllm_isa_pkg::OP_S_SUB_FP: result_o = sum;
      dllm_isa_pkg::OP_S_MUL_FP: result_o = product;
      dllm_isa_pkg::OP_S_MAX_FP: result_o = key_b > key_a ? b_i : a_i;
      dllm_isa_pkg::OP_S_EXP_FP: result_o = power;
      dllm_isa_pkg::OP_S_RECI_FP: result_o = reciprocal;
      dllm_isa_pkg::OP_S_SQRT_FP: result_o = root;
      default: result_o = a_i;  // S_MV_FP
    endcase
  end
endmodule
