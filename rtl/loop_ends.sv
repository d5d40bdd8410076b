// Where hardware loops end. While the host writes a program, in order from word 0, its loops are matched, and the table
// gets the index of C_LOOP_END at that of C_LOOP_START: the sequencer has both when a loop starts, and knows which
// loops a branch leaves. Loops that nest deeper than the stack are not stored: to start one of them traps.
module loop_ends #(
  parameter int WORDS = 1024,
  parameter int DEPTH = 16,
  localparam int Bits = $clog2(WORDS)
) (
  input  logic            clk_i,
  input  logic            write_i,
  input  logic [Bits-1:0] address_i,
  input  logic [31:0]     word_i,
  input  logic [Bits-1:0] fetch_i,
  output logic [Bits-1:0] first_o,   // of the words at fetch_i and after it, a cycle later
  output logic [Bits-1:0] second_o
);
  localparam int Top = $clog2(DEPTH);
  logic [Bits-1:0] open_q[DEPTH];
  logic [Bits-1:0] count_q, count;
  logic starts, ends, stored;
  assign count = address_i == '0 ? '0 : count_q;
  assign starts = write_i && word_i[5:0] == dllm_isa_pkg::OP_C_LOOP_START;
  assign ends = write_i && word_i[5:0] == dllm_isa_pkg::OP_C_LOOP_END && count != '0;
  assign stored = ends && count <= Bits'(DEPTH);
  always_ff @(posedge clk_i) begin
    if (write_i) count_q <= starts ? count + 1'b1 : ends ? count - 1'b1 : count;
    if (starts && count < Bits'(DEPTH)) open_q[Top'(count)] <= address_i;
  end
  sram_words #(.WIDTH(Bits), .WORDS(WORDS)) i_table (
    .clk_i, .read_a_i(1'b1), .address_a_i(fetch_i), .data_a_o(first_o), .read_b_i(1'b1),
    .address_b_i(fetch_i + Bits'(1)), .data_b_o(second_o), .write_i(stored), .address_i(open_q[Top'(count - 1'b1)]),
    .data_i(address_i)
  );

  logic unused_bits;
  assign unused_bits = &word_i[31:6];
endmodule
