// Philox4x32-10 (Salmon et al., 2011), a round per stage: a counter is accepted per cycle, its number comes 10 cycles
// later. The key is held.
module philox (
  input  logic         clk_i,
  input  logic [127:0] counter_i,  // word 0 in the lowest bits
  input  logic [63:0]  key_i,
  output logic [127:0] random_o
);
  localparam int Rounds = 10;
  logic [127:0] state_q[Rounds];
  assign random_o = state_q[Rounds-1];
  generate
    for (genvar r = 0; r < Rounds; r++) begin : g_round
      logic [127:0] c;
      logic [31:0] key_low, key_high;
      logic [63:0] product_low, product_high;
      if (r == 0) begin : g_first
        assign c = counter_i;
      end else begin : g_later
        assign c = state_q[r-1];
      end
      assign key_low = key_i[31:0] + 32'(r) * 32'h9e3779b9;
      assign key_high = key_i[63:32] + 32'(r) * 32'hbb67ae85;
      assign product_low = 64'hd2511f53 * {32'b0, c[31:0]};
      assign product_high = 64'hcd9e8d57 * {32'b0, c[95:64]};
      always_ff @(posedge clk_i)
        state_q[r] <= {product_low[31:0], product_low[63:32] ^ c[127:96] ^ key_high,
                       product_high[31:0], product_high[63:32] ^ c[63:32] ^ key_low};
    end
  endgenerate
endmodule
