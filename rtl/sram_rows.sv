// Vector SRAM: rows of WIDTH bits, two ports of which the second also writes, lanes of 16 bits; outputs are registered.
// Lanes that are written while they are read are forwarded (the vector unit's output latch).
`include "fault.svh"
module sram_rows #(
  parameter int WIDTH = 128,
  parameter int ROWS = 64,
  localparam int Bits = $clog2(ROWS)
) (
  input  logic             clk_i,
  input  logic             read_a_i,
  input  logic [Bits-1:0]  row_a_i,
  output logic [WIDTH-1:0] data_a_o,
  input  logic             read_b_i,
  input  logic             write_b_i,
  input  logic [Bits-1:0]  row_b_i,
  input  logic [WIDTH-1:0] data_b_i,
  input  logic [WIDTH/16-1:0] lanes_b_i,  // that are written
  output logic [WIDTH-1:0] data_b_o
);
  logic [WIDTH-1:0] rows_q[ROWS];

  logic [WIDTH-1:0] lanes;
  generate
    for (genvar i = 0; i < WIDTH / 16; i++) begin : g_lane
      assign lanes[16*i+:16] = {16{lanes_b_i[i]}};
    end
  endgenerate

  always_ff @(posedge clk_i) begin
    if (write_b_i) rows_q[row_b_i] <= (rows_q[row_b_i] & ~lanes) | (data_b_i & lanes);
    if (read_a_i)
      data_a_o <= write_b_i && row_a_i == row_b_i && !`FAULT(9) ? (rows_q[row_a_i] & ~lanes) | (data_b_i & lanes)
                                                                : rows_q[row_a_i];
    if (read_b_i && !write_b_i) data_b_o <= rows_q[row_b_i];
  end
endmodule
