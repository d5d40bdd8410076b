// The valid bit of a pipeline of DEPTH registers.
module valid_delay #(
  parameter int DEPTH = 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic valid_i,
  output logic valid_o
);
  generate
    if (DEPTH == 0) begin : g_wire
      assign valid_o = valid_i;
      logic unused;
      assign unused = clk_i & rst_ni;
    end else if (DEPTH == 1) begin : g_one
      logic stage_q;
      always_ff @(posedge clk_i or negedge rst_ni)
        if (!rst_ni) stage_q <= 1'b0;
        else stage_q <= valid_i;
      assign valid_o = stage_q;
    end else begin : g_stages
      logic [DEPTH-1:0] stages_q;
      always_ff @(posedge clk_i or negedge rst_ni)
        if (!rst_ni) stages_q <= '0;
        else stages_q <= {stages_q[DEPTH-2:0], valid_i};
      assign valid_o = stages_q[DEPTH-1];
    end
  endgenerate
endmodule
