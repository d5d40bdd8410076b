// V_SELECT_INT: an element per cycle, two reads and one write of the integer SRAM. The words of element `index` are
// read in the cycle before (the SRAM has registered outputs): the caller reads those of the first before start_i.
//
// By definition the instruction does all reads before all writes. If the target overlaps a source, the order of the
// elements ensures that: descending_i if the target is above a source (select_order.sv).
`include "fault.svh"
module select_int #(
  parameter int LANES = 8,
  parameter int ADDRESS = 12,
  localparam int Bits = $clog2(LANES)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               start_i,
  input  logic [ADDRESS:0]   length_i,  // at least 1
  input  logic               descending_i,
  input  logic [ADDRESS-1:0] target_i,
  input  logic [LANES-1:0]   mask_i,    // the row of the element, read with its words
  input  logic [31:0]        chosen_word_i,
  input  logic [31:0]        other_word_i,
  output logic               done_o,
  output logic [ADDRESS-1:0] next_o,  // element to read now, for the next cycle
  output logic               write_o,
  output logic [ADDRESS-1:0] address_o,
  output logic [31:0]        word_o
);
  logic busy_q, active;
  logic [ADDRESS-1:0] index_q, index, last;

  assign last = length_i[ADDRESS-1:0] - 1'b1;

  assign active = start_i || busy_q;
  assign index = start_i ? (descending_i ? last : '0) : index_q;
  assign next_o = descending_i ? index - 1'b1 : index + 1'b1;
  assign done_o = active && index == (descending_i ? '0 : last);

  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= active && !done_o;
  always_ff @(posedge clk_i) index_q <= next_o;

  logic unused_bit;
  assign unused_bit = length_i[ADDRESS];
  assign write_o = active;
  assign address_o = target_i + index;
  assign word_o = mask_i[Bits'(index)] ^ `FAULT(8) ? chosen_word_i : other_word_i;
endmodule
