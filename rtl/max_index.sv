// Streaming maximum with index: accepts a row per cycle, STAGES cycles from row to result. The comparison with the
// running maximum is the last level, so rows follow each other without a gap.
module max_index #(
  parameter int VLEN = 8,
  parameter int STAGES = 4,
  localparam int Levels = $clog2(VLEN),
  localparam int LevelBits = $clog2(Levels + 1)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               valid_i,
  input  logic [16*VLEN-1:0] row_i,
  input  logic [VLEN-1:0]    active_i,
  input  logic [15:0]        running_i,  // in the last stage
  input  logic [LevelBits-1:0] level_i,
  output logic               valid_o,
  output logic               found_o,    // a lane was active
  output logic               greater_o,  // strictly greater than the running maximum
  output logic [15:0]        value_o,
  output logic [Levels-1:0]  lane_o,
  output logic [16*VLEN-1:0] sections_o  // the maximum of each section of 2^level_i lanes, in all its lanes
);
  logic [18*VLEN-1:0] lanes;
  logic [18+Levels-1:0] best;
  logic [15:0] key, running_key;
  logic negative_zero;

  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      logic [15:0] lane_key;
      order_key i_key (.value_i(row_i[16*i+:16]), .key_o(lane_key));
      // Both zeros have one key; this bit restores the sign.
      assign lanes[18*i+:18] = {active_i[i], lane_key, row_i[16*i+15]};
    end
  endgenerate

  max_tree #(.HEIGHT(Levels), .LEVELS(Levels), .STAGES(STAGES)) i_tree (
    .clk_i, .level_i, .lanes_i(lanes), .best_o(best), .sections_o
  );
  valid_delay #(.DEPTH(STAGES - 1)) i_valid (.clk_i, .rst_ni, .valid_i, .valid_o);

  assign {found_o, key, negative_zero, lane_o} = best;
  assign value_o = {negative_zero, key[14:0] ^ {15{!key[15]}}};
  order_key i_running (.value_i(running_i), .key_o(running_key));
  assign greater_o = found_o && key > running_key;
endmodule
