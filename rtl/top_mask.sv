// V_TOPK_MASK over at most LANES lanes, a lane per cycle. Every lane counts the candidates that precede it: larger
// ones, and equal ones in lower lanes. After the last lane, the lanes with a count below k are the k largest. No list
// is stored, so k is not limited, and ties need no special rule.
//
// The caller holds the row and the mask from start_i (in the first cycle) to done_o (in the last).
`include "fault.svh"
module top_mask #(
  parameter int LANES = 8,
  localparam int Bits = $clog2(LANES)
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                start_i,
  input  logic [Bits:0]       length_i,  // lanes that take part, at least 1
  input  logic [31:0]         k_i,
  input  logic [16*LANES-1:0] row_i,
  input  logic [LANES-1:0]    candidates_i,
  output logic                done_o,
  output logic [LANES-1:0]    mask_o
);
  logic busy_q;
  logic [Bits-1:0] lane_q, lane;
  logic [LANES-1:0] later_q, later;  // lanes above the current one
  logic [15:0] key;
  logic [16*LANES-1:0] keys;
  logic active;

  assign active = start_i || busy_q;
  assign lane = start_i ? '0 : lane_q;
  assign done_o = active && {1'b0, lane} == length_i - 1'b1;

  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= active && !done_o;
  assign later = start_i ? ~LANES'(1) : later_q;
  always_ff @(posedge clk_i) begin
    lane_q <= lane + 1'b1;
    later_q <= later << 1;
  end

  logic candidate;
  assign key = keys[16*lane+:16];
  assign candidate = candidates_i[lane];

  generate
    for (genvar i = 0; i < LANES; i++) begin : g_lane
      logic [Bits-1:0] ahead_q, ahead;
      logic goes_before;
      order_key i_key (.value_i(row_i[16*i+:16]), .key_o(keys[16*i+:16]));
      assign goes_before = candidate && (key > keys[16*i+:16] ||
                           (key == keys[16*i+:16] && later[i] ^ `FAULT(7)));
      assign ahead = (start_i ? '0 : ahead_q) + {{(Bits - 1){1'b0}}, goes_before};
      always_ff @(posedge clk_i) ahead_q <= ahead;
      assign mask_o[i] = candidates_i[i] && (Bits + 1)'(i) < length_i && {{(32 - Bits){1'b0}}, ahead} < k_i;
    end
  endgenerate
endmodule
