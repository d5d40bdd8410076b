// The values of a tree over 2^LEVELS lanes after level HEIGHT. Level l of LEVELS + 1 (the last one adds the running
// value) belongs to pipeline stage (l - 1) * STAGES / (LEVELS + 1), so that levels are spread evenly over the stages;
// there are registers where the stages of two neighbouring levels differ.
module tree_registers #(
  parameter int WIDTH = 32,
  parameter int HEIGHT = 3,
  parameter int LEVELS = 3,
  parameter int STAGES = 8
) (
  input  logic             clk_i,
  input  logic [WIDTH-1:0] data_i,
  output logic [WIDTH-1:0] data_o
);
  localparam int Stage = HEIGHT == 0 ? 0 : ((HEIGHT - 1) * STAGES) / (LEVELS + 1);
  localparam int Next = HEIGHT == LEVELS ? STAGES - 1 : (HEIGHT * STAGES) / (LEVELS + 1);
  delay #(.WIDTH(WIDTH), .DEPTH(Next - Stage)) i_delay (.clk_i, .data_i, .data_o);
endmodule
