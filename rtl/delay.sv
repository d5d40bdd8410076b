// A shift register of DEPTH stages; a wire for 0. Data need no reset, because a valid bit travels with them.
module delay #(
  parameter int WIDTH = 1,
  parameter int DEPTH = 1
) (
  input  logic             clk_i,
  input  logic [WIDTH-1:0] data_i,
  output logic [WIDTH-1:0] data_o
);
  generate
    if (DEPTH == 0) begin : g_wire
      assign data_o = data_i;
      logic unused;
      assign unused = clk_i;
    end else if (DEPTH == 1) begin : g_one
      logic [WIDTH-1:0] stage_q;
      always_ff @(posedge clk_i) stage_q <= data_i;
      assign data_o = stage_q;
    end else begin : g_stages
      logic [WIDTH*DEPTH-1:0] stages_q;
      always_ff @(posedge clk_i) stages_q <= {stages_q[WIDTH*(DEPTH-1)-1:0], data_i};
      assign data_o = stages_q[WIDTH*DEPTH-1-:WIDTH];
    end
  endgenerate
endmodule
