// V_SHFT_V: lanes move up by a distance. Mode 0: zeros come in; 1: the row rotates; 2: each section of 2^level_i lanes
// rotates. A rotation is two shifts: lanes below the distance come from the upper end of their section.
`include "fault.svh"
module row_shift #(
  parameter int VLEN = 8,
  localparam int Lane = $clog2(VLEN)
) (
  input  logic [16*VLEN-1:0]         row_i,
  input  logic [31:0]                distance_i,
  input  logic [1:0]                 mode_i,
  input  logic [$clog2(Lane+1)-1:0]  level_i,
  output logic [16*VLEN-1:0]         row_o
);
  logic [Lane:0] section, distance, rest;
  logic beyond;
  logic [16*VLEN-1:0] up, down;
  assign section = mode_i == 2'd2 ? (Lane + 1)'(1) << level_i : (Lane + 1)'(VLEN);
  assign distance = distance_i[Lane:0] & (section - 1'b1);  // modulo the section
  assign rest = section - distance;
  assign beyond = mode_i == 2'd0 && distance_i >= VLEN;
  assign up = row_i << {distance, 4'b0};
  assign down = row_i >> {rest, 4'b0};
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      logic from_below;
      assign from_below = ((Lane + 1)'(i) & (section - 1'b1)) >= distance;
      assign row_o[16*i+:16] = beyond ? 16'h0 : from_below ? up[16*i+:16]
                               : mode_i == 2'd0 ? 16'h0 : down[16*i+:16];
    end
  endgenerate

`ifndef SYNTHESIS
  // The distance that is left of a section is never zero, so that a rotation by 0 does not read beyond the row.
  always_comb a_rest_is_positive: assert (rest != '0 || section == '0);
`endif
endmodule
