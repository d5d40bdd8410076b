// Arithmetic right shift whose lowest bit is set if a one was lost (round to odd).
`include "fault.svh"
module shift_sticky #(
  parameter int WIDTH = 32
) (
  input  logic signed [WIDTH-1:0] value_i,
  input  logic [9:0]              distance_i,
  output logic signed [WIDTH-1:0] shifted_o
);
  logic signed [WIDTH-1:0] shifted;
  logic lost;
  assign shifted = value_i >>> distance_i;
  assign lost = (shifted << distance_i) != value_i && !`FAULT(13);
  assign shifted_o = {shifted[WIDTH-1:1], shifted[0] | lost};
endmodule
