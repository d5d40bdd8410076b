// Fetch, decode and hardware loops. The instruction SRAM delivers two words per cycle, at the program counter and after
// it, so that a loop instruction after another instruction takes no cycle of its own: both are decoded together. A
// separate loop instruction is processed while the previous instruction still executes.
//
// A branch that is taken goes on with its target in the next cycle. It drops the loops whose bodies do not contain the
// target: loops nest, so those that remain are the lowest ones of the stack.
`include "assert.svh"
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
  input  logic               first_is_branch_i,
  input  logic               first_writes_gp_i,
  input  logic               first_stops_i,  // C_BREAK, a trap, or it may still trap: no loop is decoded with it
  input  logic [ADDRESS-1:0] first_end_i,    // where the loop ends that the first, the second word starts
  input  logic [ADDRESS-1:0] second_end_i,
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
  logic [ADDRESS-1:0] body_q[DEPTH], last_q[DEPTH];  // first and last instruction of the open loops
  logic [ADDRESS-1:0] body, last;
  logic attempt, taken;
  logic [ADDRESS:0] target;
  logic [31:0] word, counter;

  assign in_program = running_q && pc_q < length_i;
  assign end_o = running_q && pc_q >= length_i;
  assign alone = in_program && (first_is_start_i || first_is_end_i) && !hold_loop_i && !stop_i;
  assign valid_o = in_program && !first_is_start_i && !first_is_end_i;
  assign pc_o = pc_q[ADDRESS-1:0];
  assign folded = take_i && pc_q + 1'b1 < length_i && (second_is_start_i || second_is_end_i) && !first_stops_i &&
                  !taken && !(first_writes_gp_i && first_i[9:6] == second_i[9:6]);

  // Branches: offsets are signed, 18 bits.
  logic [DEPTH-1:0] kept;
  logic [Sp-1:0] depth_kept;
  logic signed [31:0] offset;
  assign taken = take_i && first_is_branch_i && !first_stops_i && counter_first_i != 32'd0;
  assign offset = {{14{first_i[31]}}, first_i[31:14]};
  assign target = pc_q + offset[ADDRESS:0];
  generate
    for (genvar i = 0; i < DEPTH; i++) begin : g_frame
      assign kept[i] = Sp'(i) < depth_q && {1'b0, body_q[i]} <= target && target <= {1'b0, last_q[i]};
    end
  endgenerate
  always_comb begin
    depth_kept = '0;
    for (int i = 0; i < DEPTH; i++) if (kept[i]) depth_kept = Sp'(i + 1);
  end

  assign word = alone ? first_i : second_i;
  assign is_start = alone ? first_is_start_i : second_is_start_i;
  assign counter = alone ? counter_first_i : counter_second_i;
  assign after = pc_q + (alone ? (ADDRESS + 1)'(1) : (ADDRESS + 1)'(2));  // after the loop instruction
  assign body = body_q[Top'(depth_q - 1'b1)];
  assign last = alone ? first_end_i : second_end_i;

  logic again;
  assign again = `FAULT(11) ? counter > 32'd0 : counter > 32'd1;
  assign attempt = alone || folded;
  assign write_o = attempt && !trap_o;
  assign write_register_o = word[9:6];
  assign write_data_o = is_start ? {10'b0, word[31:10]} : again ? counter - 32'd1 : 32'd0;
  assign trap_o = attempt && (is_start ? depth_q == Sp'(DEPTH) : depth_q == '0);

  always_comb begin
    next = pc_q;
    if (write_o) next = !is_start && again ? {1'b0, body} : after;
    else if (taken) next = target;
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
      else if (taken) depth_q <= depth_kept;
    end
  end
  always_ff @(posedge clk_i)
    if (write_o && is_start) begin
      body_q[Top'(depth_q)] <= after[ADDRESS-1:0];
      last_q[Top'(depth_q)] <= last;
    end

  logic unused_bits;
  assign unused_bits = &{first_i[13:10], first_i[5:0], second_i[5:0], word[5:0], offset};

  `DLLM_ASSERT(a_stack_within_its_depth, depth_q <= Sp'(DEPTH))
  `DLLM_ASSERT(a_loops_are_decoded_alone_or_folded, !(alone && take_i))
  `DLLM_ASSERT(a_a_trap_writes_nothing, !(trap_o && write_o))
`ifndef FORMAL
  // Of programs whose loops nest, which the assembler ensures.
  `DLLM_ASSERT(a_remaining_loops_are_the_lowest, !taken || kept == (DEPTH'(1) << depth_kept) - 1'b1)
`endif
endmodule
