// The first of the largest active lanes: {active, key, negative zero} per lane, pairs compared on HEIGHT levels. A node
// keeps the left candidate unless the right {active, key} is strictly greater: the lower lane wins ties, and an
// inactive lane loses against every other. The last of the LEVELS + 1 levels is the running maximum.
`include "fault.svh"
module max_tree #(
  parameter int HEIGHT = 3,
  parameter int LEVELS = 3,
  parameter int STAGES = 4
) (
  input  logic                         clk_i,
  input  logic [(18 << HEIGHT) - 1:0]  lanes_i,
  output logic [18 + HEIGHT - 1:0]     best_o
);
  logic [18+HEIGHT-1:0] chosen;

  generate
    if (HEIGHT == 0) begin : g_leaf
      assign chosen = lanes_i;
    end else begin : g_node
      localparam int Half = 18 << (HEIGHT - 1);
      localparam int W = 18 + HEIGHT - 1;
      logic [W-1:0] left, right;
      logic take_right;
      max_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_left (.clk_i, .lanes_i(lanes_i[Half-1:0]), .best_o(left));
      max_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_right (.clk_i, .lanes_i(lanes_i[2*Half-1:Half]), .best_o(right));
      assign take_right = `FAULT(2) ? right[W-1-:17] >= left[W-1-:17] : right[W-1-:17] > left[W-1-:17];
      if (HEIGHT == 1) begin : g_first
        assign chosen = take_right ? {right, 1'b1} : {left, 1'b0};
      end else begin : g_later
        assign chosen = take_right ? {right[W-1-:18], 1'b1, right[HEIGHT-2:0]}
                                   : {left[W-1-:18], 1'b0, left[HEIGHT-2:0]};
      end
    end
  endgenerate

  tree_registers #(.WIDTH(18 + HEIGHT), .HEIGHT(HEIGHT), .LEVELS(LEVELS), .STAGES(STAGES))
    i_registers (.clk_i, .data_i(chosen), .data_o(best_o));
endmodule
