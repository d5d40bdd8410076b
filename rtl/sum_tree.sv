// FP32 sum of 2^HEIGHT values, neighbours first. The last of the LEVELS + 1 levels is the running sum. The nodes of
// level level_i are sums of sections of 2^level_i lanes: they go to all their lanes, and travel with the sums above.
module sum_tree #(
  parameter int HEIGHT = 3,
  parameter int LEVELS = 3,
  parameter int STAGES = 8,
  localparam int LevelBits = $clog2(LEVELS + 1)
) (
  input  logic                        clk_i,
  input  logic [LevelBits-1:0]        level_i,  // held while rows are in flight
  input  logic [(32 << HEIGHT) - 1:0] values_i,
  output logic [31:0]                 sum_o,
  output logic [(16 << HEIGHT) - 1:0] sections_o
);
  logic [31:0] sum;
  logic [15:0] rounded;
  logic [(16 << HEIGHT) - 1:0] below, sections;
  f32_to_lane i_round (.value_i(sum), .lane_o(rounded));
  assign sections = level_i == LevelBits'(HEIGHT) ? {(1 << HEIGHT){rounded}} : below;

  generate
    if (HEIGHT == 0) begin : g_leaf
      assign sum = values_i;
      assign below = '0;
    end else begin : g_node
      localparam int Half = 32 << (HEIGHT - 1);
      localparam int Lanes = 16 << (HEIGHT - 1);
      logic [31:0] left, right;
      sum_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_left (.clk_i, .level_i, .values_i(values_i[Half-1:0]), .sum_o(left), .sections_o(below[Lanes-1:0]));
      sum_tree #(.HEIGHT(HEIGHT - 1), .LEVELS(LEVELS), .STAGES(STAGES))
        i_right (.clk_i, .level_i, .values_i(values_i[2*Half-1:Half]), .sum_o(right),
                 .sections_o(below[2*Lanes-1:Lanes]));
      fp_add #(.MAN(23)) i_add (.a_i(left), .b_i(right), .sum_o(sum));
    end
  endgenerate

  tree_registers #(.WIDTH(32), .HEIGHT(HEIGHT), .LEVELS(LEVELS), .STAGES(STAGES))
    i_registers (.clk_i, .data_i(sum), .data_o(sum_o));
  tree_registers #(.WIDTH(16 << HEIGHT), .HEIGHT(HEIGHT), .LEVELS(LEVELS), .STAGES(STAGES))
    i_sections (.clk_i, .data_i(sections), .data_o(sections_o));
endmodule
