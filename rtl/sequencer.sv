// Fetch, decode and hardware loops. The instruction SRAM delivers two words per cycle, at the program counter and after
// it, so that a loop instruction after another instruction takes no cycle of its own: both are decoded together. A
// separate loop instruction is processed while the previous instruction still executes.
`include "fault.svh"
module sequencer #(
  parameter int ADDRESS = 12,  // bits of a program counter
  parameter int DEPTH = 16     // of the loop stack
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,
  input  logic               stop_i,
  input  logic [ADDRESS:0]   length_i,
  output logic [ADDRESS-1:0] fetch_o,  // word of the next cycle's pair
  input  logic [31:0]        first_i,
  input  logic [31:0]        second_i,
  input  logic               first_is_start_i,
  input  logic               first_is_end_i,
  input  logic               first_writes_gp_i,
  input  logic               first_is_break_i,
  input  logic               second_is_start_i,
  input  logic               second_is_end_i,
  input  logic               take_i,  // the first instruction leaves decode, to execute
  input  logic               hold_loop_i,  // the executing instruction will write the loop's register
  input  logic [31:0]        counter_first_i,  // registers rd of both words
  input  logic [31:0]        counter_second_i,
  output logic               valid_o,
  output logic               end_o,  // after the last instruction
  output logic [ADDRESS-1:0] pc_o,
  output logic               write_o,  // loop counters
  output logic [3:0]         write_register_o,
  output logic [31:0]        write_data_o,
  output logic               trap_o
);
  localparam int Sp = $clog2(DEPTH + 1);
  localparam int Top = $clog2(DEPTH);
  logic [ADDRESS:0] pc_q, pc, after, next;
  logic running_q, in_program, alone, folded, is_start;
  logic [Sp-1:0] depth_q;
  logic [ADDRESS-1:0] body_q[DEPTH];
  logic [ADDRESS-1:0] body;
  logic [31:0] word, counter;

  assign in_program = running_q && pc_q < length_i;
  assign end_o = running_q && pc_q >= length_i;
  assign alone = in_program && (first_is_start_i || first_is_end_i) && !hold_loop_i && !stop_i;
  assign valid_o = in_program && !first_is_start_i && !first_is_end_i;
  assign pc_o = pc_q[ADDRESS-1:0];
  assign folded = take_i && pc_q + 1'b1 < length_i && (second_is_start_i || second_is_end_i) && !first_is_break_i &&
                  !(first_writes_gp_i && first_i[9:6] == second_i[9:6]);

  assign word = alone ? first_i : second_i;
  assign is_start = alone ? first_is_start_i : second_is_start_i;
  assign counter = alone ? counter_first_i : counter_second_i;
  assign after = pc_q + (alone ? (ADDRESS + 1)'(1) : (ADDRESS + 1)'(2));  // after the loop instruction
  assign body = body_q[Top'(depth_q - 1'b1)];

  logic again;
  assign again = `FAULT(11) ? counter > 32'd0 : counter > 32'd1;
  assign write_o = alone || folded;
  assign write_register_o = word[9:6];
  assign write_data_o = is_start ? {10'b0, word[31:10]} : again ? counter - 32'd1 : 32'd0;
  assign trap_o = write_o && (is_start ? depth_q == Sp'(DEPTH) : depth_q == '0);

  always_comb begin
    next = pc_q;
    if (write_o) next = !is_start && again ? {1'b0, body} : after;
    else if (take_i) next = pc_q + 1'b1;
    pc = start_i ? '0 : next;
  end
  assign fetch_o = pc[ADDRESS-1:0];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      pc_q <= '0;
      depth_q <= '0;
    end else if (start_i) begin
      running_q <= 1'b1;
      pc_q <= '0;
      depth_q <= '0;
    end else if (stop_i || trap_o) begin
      running_q <= 1'b0;
    end else begin
      pc_q <= pc;
      if (write_o) depth_q <= is_start ? depth_q + 1'b1 : again ? depth_q : depth_q - 1'b1;
    end
  end
  always_ff @(posedge clk_i) if (write_o && is_start && !trap_o) body_q[Top'(depth_q)] <= after[ADDRESS-1:0];

  logic unused_bits;
  assign unused_bits = &{first_i[31:10], first_i[5:0], second_i[5:0], word[5:0]};

`ifndef SYNTHESIS
  always_ff @(posedge clk_i)
    if (rst_ni) begin
      assert (depth_q <= Sp'(DEPTH));
      assert (!(alone && take_i));
    end
`endif
endmodule
