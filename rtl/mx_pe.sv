// A processing element. First stage: the integer product, added to the exact sum of its group (terms that share both
// scales). Second stage, at the end of a group: the sum is shifted into the window below the reference exponent and
// added.
//
//   reference = max(reference so far, largest exponent of the instruction's groups)
//   value     = sticky(value >> rise of the reference) + sticky((sum << GUARD) >> (reference - exponent of the group))
//
// The largest exponent arrives with the first term: all scales of an instruction are read before its products.
`include "fault.svh"
module mx_pe #(
  parameter int A_WIDTH = 8,
  parameter int W_WIDTH = 4,
  parameter int GROUP = 8,
  parameter int ACC = 32,
  parameter int GUARD = 6
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,
  input  logic                      clear_i,        // the result has been read
  input  logic                      valid_i,
  input  logic                      first_i,        // of the instruction
  input  logic                      group_first_i,
  input  logic                      group_last_i,
  input  logic signed [A_WIDTH-1:0] a_i,
  input  logic signed [W_WIDTH-1:0] w_i,
  input  logic                      nan_i,
  input  logic                      any_i,          // a group of the instruction is not zero
  input  logic signed [9:0]         largest_i,      // exponent of those
  input  logic                      zero_i,         // this group is zero
  input  logic signed [9:0]         exponent_i,     // of this group
  output logic signed [ACC-1:0]     value_o,
  output logic signed [9:0]         reference_o,
  output logic                      nan_o
);
  localparam int Sum = A_WIDTH + W_WIDTH + $clog2(GROUP);
  logic signed [Sum-1:0] sum_q, product;
  assign product = Sum'(a_i * w_i);

  logic align_q, start_q, any_q, zero_q;
  logic signed [9:0] largest_q, exponent_q;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) align_q <= 1'b0;
    else align_q <= valid_i && group_last_i;
  always_ff @(posedge clk_i)
    if (valid_i) begin
      sum_q <= group_first_i ? product : sum_q + product;
      // The second stage of the instruction's first group shifts the window.
      if (group_first_i) start_q <= first_i;
      if (first_i) any_q <= any_i;
      if (first_i) largest_q <= largest_i;
      zero_q <= zero_i;
      exponent_q <= exponent_i;
    end

  logic held_q;  // the reference is valid
  logic signed [9:0] reference_q, reference;
  logic signed [ACC-1:0] value_q, kept, added;
  logic rises;
  assign rises = start_q && any_q && (!held_q || largest_q > reference_q);
  assign reference = rises ? largest_q : reference_q;
  shift_sticky #(.WIDTH(ACC)) i_keep (
    .value_i(value_q), .distance_i(rises && held_q ? largest_q - reference_q : 10'd0), .shifted_o(kept)
  );
  shift_sticky #(.WIDTH(ACC)) i_align (
    .value_i(ACC'(sum_q) <<< GUARD), .distance_i(reference - exponent_q), .shifted_o(added)
  );
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      held_q <= 1'b0;
      value_q <= '0;
      reference_q <= '0;
      nan_o <= 1'b0;
    end else begin
      if (clear_i) begin
        held_q <= 1'b0;
        value_q <= '0;
        nan_o <= 1'b0;
      end else if (align_q) begin
        if (rises) held_q <= 1'b1;
        reference_q <= reference;
        value_q <= kept + (zero_q ? '0 : added);
      end
      if (valid_i && nan_i && !clear_i && !`FAULT(14)) nan_o <= 1'b1;
    end
  end
  assign value_o = value_q;
  assign reference_o = reference_q;
endmodule
