// FP32 sum of 2^HEIGHT values, neighbours first. The last of the LEVELS + 1 levels is the running sum.
module sum_tree #(
  parameter int HEIGHT = 3,
  parameter int LEVELS = 3,
  parameter int STAGES = 8
) (
  input  logic                        clk_i,
  input  logic [(32 << HEIGHT) - 1:0] values_i,
  output logic [31:0]                 sum_o
);
  logic [31:0] sum;

  generate
    if (HEIGHT == 0) begin : g_leaf
      assign sum = values_i;
    end else begin : g_node
      localparam int Half = 32 << (HEIGHT - 1);
      logic [31:0] left, right;
      sum_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_left (.clk_i, .values_i(values_i[Half-1:0]), .sum_o(left));
      sum_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_right (.clk_i, .values_i(values_i[2*Half-1:Half]), .sum_o(right));
      fp_add #(.MAN(23)) i_add (.a_i(left), .b_i(right), .sum_o(sum));
    end
  endgenerate

  tree_registers #(.WIDTH(32), .HEIGHT(HEIGHT), .LEVELS(LEVELS), .STAGES(STAGES))
    i_registers (.clk_i, .data_i(sum), .data_o(sum_o));
endmodule
