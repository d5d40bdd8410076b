// The streaming units and the scalar functions in one module, for tests with many vectors.
module unit_bench #(
  parameter int VLEN = 8,
  parameter int MAX_STAGES = 4,
  parameter int SUM_STAGES = 8,
  localparam int Levels = $clog2(VLEN)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic [16*VLEN-1:0] row_i,
  input  logic [VLEN-1:0]    active_i,
  input  logic               valid_i,
  input  logic [15:0]        max_running_i,
  output logic               max_valid_o,
  output logic               max_found_o,
  output logic               max_greater_o,
  output logic [15:0]        max_value_o,
  output logic [Levels-1:0]  max_lane_o,
  input  logic [31:0]        sum_running_i,
  output logic               sum_valid_o,
  output logic [31:0]        sum_o,
  input  logic               top_start_i,
  input  logic [Levels:0]    top_length_i,
  input  logic [31:0]        top_k_i,
  output logic               top_done_o,
  output logic [VLEN-1:0]    top_mask_o,
  input  logic [15:0]        a_i,
  input  logic [15:0]        b_i,
  output logic [15:0]        exp_o,
  output logic [15:0]        reciprocal_o,
  output logic [15:0]        add_o,
  output logic [15:0]        multiply_o,
  output logic [15:0]        sqrt_o,
  input  logic [31:0]        wide_a_i,
  input  logic [31:0]        wide_b_i,
  output logic [31:0]        wide_product_o
);
  logic [16*VLEN-1:0] unused_maxima, unused_sums;
  max_index #(.VLEN(VLEN), .STAGES(MAX_STAGES)) i_max (
    .clk_i, .rst_ni, .valid_i, .row_i, .active_i, .running_i(max_running_i), .valid_o(max_valid_o),
    .found_o(max_found_o), .greater_o(max_greater_o), .value_o(max_value_o), .lane_o(max_lane_o), .level_i('0),
    .sections_o(unused_maxima)
  );
  row_sum #(.VLEN(VLEN), .STAGES(SUM_STAGES)) i_sum (
    .clk_i, .rst_ni, .valid_i, .row_i, .active_i, .running_i(sum_running_i), .valid_o(sum_valid_o), .sum_o,
    .level_i('0), .sections_o(unused_sums)
  );
  top_mask #(.LANES(VLEN)) i_top (
    .clk_i, .rst_ni, .start_i(top_start_i), .length_i(top_length_i), .k_i(top_k_i), .row_i, .candidates_i(active_i),
    .done_o(top_done_o), .mask_o(top_mask_o)
  );
  bf16_exp i_exp (.x_i(a_i), .exp_o);
  bf16_reciprocal i_reciprocal (.x_i(a_i), .reciprocal_o);
  fp_add #(.MAN(7)) i_add (.a_i, .b_i, .sum_o(add_o));
  fp_multiply #(.MAN(7)) i_multiply (.a_i, .b_i, .product_o(multiply_o));
  bf16_sqrt i_sqrt (.x_i(a_i), .root_o(sqrt_o));
  fp_multiply i_wide (.a_i(wide_a_i), .b_i(wide_b_i), .product_o(wide_product_o));
endmodule
