// V_PS_V: inclusive prefix sum in FP32 from lane 0 upwards, each lane rounded to BF16. Stage s adds the lanes of its
// share, and hands the sum on; so a row is accepted per cycle, and the result comes STAGES cycles later. The order is
// part of the definition: VLEN / STAGES adders follow each other between two registers.
module row_scan #(
  parameter int VLEN = 8,
  parameter int STAGES = 9
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               valid_i,
  input  logic [16*VLEN-1:0] row_i,
  input  logic [VLEN-1:0]    active_i,
  output logic               valid_o,
  output logic [16*VLEN-1:0] row_o
);
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      // The first lane starts at +0, so that a leading -0 becomes +0.
      localparam int Stage = (i * STAGES) / VLEN;
      localparam int Before = i == 0 ? Stage : ((i - 1) * STAGES) / VLEN;
      logic [31:0] carry, sum;
      logic [16:0] lane;
      logic [15:0] rounded, result;
      if (i == 0) begin : g_first
        assign carry = 32'b0;
      end else begin : g_later
        delay #(.WIDTH(32), .DEPTH(Stage - Before)) i_carry (.clk_i, .data_i(g_lane[i-1].sum), .data_o(carry));
      end
      delay #(.WIDTH(17), .DEPTH(Stage)) i_lane (.clk_i, .data_i({active_i[i], row_i[16*i+:16]}), .data_o(lane));
      logic [31:0] added;
      fp_add #(.MAN(23)) i_add (.a_i(carry), .b_i({lane[15:0], 16'b0}), .sum_o(added));
      assign sum = lane[16] ? added : carry;
      f32_to_lane i_round (.value_i(sum), .lane_o(rounded));
      assign result = lane[16] ? rounded : lane[15:0];
      delay #(.WIDTH(16), .DEPTH(STAGES - 1 - Stage)) i_result (.clk_i, .data_i(result), .data_o(row_o[16*i+:16]));
    end
  endgenerate
  valid_delay #(.DEPTH(STAGES - 1)) i_valid (.clk_i, .rst_ni, .valid_i, .valid_o);
endmodule
