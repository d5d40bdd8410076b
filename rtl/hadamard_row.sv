// C_HADAMARD_TRANSFORM of sections of 2^level_i lanes: a level of butterflies per cycle in FP32, distances 1, 2, 4,
// ...; in the last cycle one multiplication by 2^(-level / 2) and one rounding. level_i + 1 cycles, one row at a time.
`include "fault.svh"
module hadamard_row #(
  parameter int VLEN = 8,
  localparam int Lane = $clog2(VLEN),
  localparam int LevelBits = $clog2(Lane + 1)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 start_i,  // the row is held until done_o
  input  logic [LevelBits-1:0] level_i,
  input  logic [16*VLEN-1:0]   row_i,
  output logic                 done_o,
  output logic [16*VLEN-1:0]   row_o
);
  logic busy_q, active;
  logic [LevelBits-1:0] step_q, step;
  assign active = start_i || busy_q;
  assign step = start_i ? '0 : step_q;
  assign done_o = active && step == level_i;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= active && !done_o;
  always_ff @(posedge clk_i) step_q <= step + 1'b1;

  // 2^(-level / 2): a power of two, or that of the square root of a half.
  logic [31:0] norm;
  logic [7:0] halves;
  assign halves = {{(8 - LevelBits){1'b0}}, level_i} >> 1;
  assign norm = level_i[0] ^ `FAULT(16) ? {1'b0, 8'd126 - halves, 23'h3504f3} : {1'b0, 8'd127 - halves, 23'b0};

  logic [32*VLEN-1:0] values_q, values, sums;
  always_ff @(posedge clk_i) values_q <= sums;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      logic [31:0] partner, scaled;
      logic second;  // the upper lane of its pair subtracts
      assign values[32*i+:32] = start_i ? {row_i[16*i+:16], 16'b0} : values_q[32*i+:32];
      always_comb begin
        partner = values[32*(i^1)+:32];
        second = i[0];
        for (int l = 1; l < Lane; l++)
          if (step == LevelBits'(l)) begin
            partner = values[32*(i^(1<<l))+:32];
            second = i[l];
          end
      end
      logic [31:0] minuend, addend;
      assign minuend = second ? partner : values[32*i+:32];
      assign addend = second ? {!values[32*i+31], values[32*i+:31]} : partner;
      fp_add #(.MAN(23)) i_add (.a_i(minuend), .b_i(addend), .sum_o(sums[32*i+:32]));
      fp_multiply i_scale (.a_i(values[32*i+:32]), .b_i(norm), .product_o(scaled));
      f32_to_lane i_round (.value_i(scaled), .lane_o(row_o[16*i+:16]));
    end
  endgenerate
endmodule
