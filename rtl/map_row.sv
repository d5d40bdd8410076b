// S_MAP_V_FP: words of FP SRAM become the first lanes of a row, the others 0. A word is read in one cycle and inserted
// into the row in the next.
`include "fault.svh"
module map_row #(
  parameter int VLEN = 16,
  localparam int Row = 16 * VLEN,
  localparam int Lane = $clog2(VLEN)
) (
  input  logic            clk_i,
  input  logic            first_i,     // the instruction's first cycle
  input  logic [31:0]     elements_i,  // at most VLEN
  input  logic [15:0]     word_i,      // requested in the cycle before
  output logic [Lane:0]   next_o,      // word to request in this cycle
  output logic            done_o,
  output logic [Row-1:0]  row_o
);
  logic [Lane+1:0] count_q, count;
  logic [Row-1:0] row_q;
  assign count = first_i ? '0 : count_q;
  assign next_o = count[Lane+1:1] + (Lane + 1)'(1);
  assign done_o = {{(31 - Lane - 1){1'b0}}, count} + 32'd1 >= elements_i << 1;
  always_comb begin
    row_o = count == '0 && !`FAULT(10) ? '0 : row_q;
    if (!count[0] && elements_i != 32'd0) row_o[16*count[Lane:1]+:16] = word_i;
  end
  always_ff @(posedge clk_i) begin
    count_q <= count + 1'b1;
    row_q <= row_o;
  end
endmodule
