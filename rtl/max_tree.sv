// The first of the largest active lanes: {active, key, negative zero} per lane, pairs compared on HEIGHT levels. A node
// keeps the left candidate unless the right {active, key} is strictly greater: the lower lane wins ties, and an
// inactive lane loses against every other. The last of the LEVELS + 1 levels is the running maximum. The nodes of level
// level_i are the maxima of sections of 2^level_i lanes: they go to all their lanes, and travel with the nodes above.
`include "fault.svh"
module max_tree #(
  parameter int HEIGHT = 3,
  parameter int LEVELS = 3,
  parameter int STAGES = 4,
  localparam int LevelBits = $clog2(LEVELS + 1)
) (
  input  logic                         clk_i,
  input  logic [LevelBits-1:0]         level_i,  // held while rows are in flight
  input  logic [(18 << HEIGHT) - 1:0]  lanes_i,
  output logic [18 + HEIGHT - 1:0]     best_o,
  output logic [(16 << HEIGHT) - 1:0]  sections_o
);
  logic [18+HEIGHT-1:0] chosen;
  logic [15:0] value;
  logic [(16 << HEIGHT) - 1:0] below, sections;
  // {key, negative zero} back to a number, as in max_index.
  assign value = {chosen[HEIGHT], chosen[HEIGHT+1+:15] ^ {15{!chosen[HEIGHT+16]}}};
  assign sections = level_i == LevelBits'(HEIGHT) ? {(1 << HEIGHT){value}} : below;

  generate
    if (HEIGHT == 0) begin : g_leaf
      assign chosen = lanes_i;
      assign below = '0;
    end else begin : g_node
      localparam int Half = 18 << (HEIGHT - 1);
      localparam int Lanes = 16 << (HEIGHT - 1);
      localparam int W = 18 + HEIGHT - 1;
      logic [W-1:0] left, right;
      logic take_right;
      max_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_left (.clk_i, .level_i, .lanes_i(lanes_i[Half-1:0]), .best_o(left), .sections_o(below[Lanes-1:0]));
      max_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_right (.clk_i, .level_i, .lanes_i(lanes_i[2*Half-1:Half]), .best_o(right),
                 .sections_o(below[2*Lanes-1:Lanes]));
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
  tree_registers #(.WIDTH(16 << HEIGHT), .HEIGHT(HEIGHT), .LEVELS(LEVELS), .STAGES(STAGES))
    i_sections (.clk_i, .data_i(sections), .data_o(sections_o));
endmodule
