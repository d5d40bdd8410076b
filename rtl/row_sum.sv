// V_RED_SUM: running FP32 sum of BF16 rows: accepts a row per cycle, STAGES cycles from row to result. Inactive lanes
// count as zero.
module row_sum #(
  parameter int VLEN = 8,
  parameter int STAGES = 8,
  localparam int Levels = $clog2(VLEN),
  localparam int LevelBits = $clog2(Levels + 1)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               valid_i,
  input  logic [16*VLEN-1:0] row_i,
  input  logic [VLEN-1:0]    active_i,
  input  logic [31:0]        running_i,  // in the last stage
  input  logic [LevelBits-1:0] level_i,
  output logic               valid_o,
  output logic [31:0]        sum_o,
  output logic [16*VLEN-1:0] sections_o  // the sum of each section of 2^level_i lanes, in all its lanes
);
  logic [32*VLEN-1:0] values;
  logic [31:0] row;

  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      assign values[32*i+:32] = active_i[i] ? {row_i[16*i+:16], 16'b0} : 32'b0;
    end
  endgenerate

  sum_tree #(.HEIGHT(Levels), .LEVELS(Levels), .STAGES(STAGES)) i_tree (
    .clk_i, .level_i, .values_i(values), .sum_o(row), .sections_o
  );
  valid_delay #(.DEPTH(STAGES - 1)) i_valid (.clk_i, .rst_ni, .valid_i, .valid_o);
  fp_add #(.MAN(23)) i_running (.a_i(running_i), .b_i(row), .sum_o(sum_o));
endmodule
