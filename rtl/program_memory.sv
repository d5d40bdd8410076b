// Instruction SRAM: two words per cycle, with the table of its loops' ends.
module program_memory #(
  parameter int WORDS = 1024,
  parameter int LOOP_DEPTH = 16,
  localparam int Bits = $clog2(WORDS)
) (
  input  logic            clk_i,
  input  logic            write_i,       // by the host
  input  logic [Bits-1:0] address_i,
  input  logic [31:0]     word_i,
  input  logic [Bits-1:0] fetch_i,
  output logic [31:0]     first_o,       // the words at fetch_i and after it, a cycle later
  output logic [31:0]     second_o,
  output logic [Bits-1:0] first_end_o,   // where the loops end that they start
  output logic [Bits-1:0] second_end_o
);
  sram_words #(.WIDTH(32), .WORDS(WORDS)) i_words (
    .clk_i, .read_a_i(1'b1), .address_a_i(fetch_i), .data_a_o(first_o), .read_b_i(1'b1),
    .address_b_i(fetch_i + Bits'(1)), .data_b_o(second_o), .write_i, .address_i, .data_i(word_i)
  );
  loop_ends #(.WORDS(WORDS), .DEPTH(LOOP_DEPTH)) i_loop_ends (
    .clk_i, .write_i, .address_i, .word_i, .fetch_i, .first_o(first_end_o), .second_o(second_end_o)
  );
endmodule
