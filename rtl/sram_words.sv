// A scalar SRAM: two reads and one write per cycle, registered outputs; written words are forwarded to reads.
module sram_words #(
  parameter int WIDTH = 32,
  parameter int WORDS = 64,
  localparam int Bits = $clog2(WORDS)
) (
  input  logic             clk_i,
  input  logic             read_a_i,
  input  logic [Bits-1:0]  address_a_i,
  output logic [WIDTH-1:0] data_a_o,
  input  logic             read_b_i,
  input  logic [Bits-1:0]  address_b_i,
  output logic [WIDTH-1:0] data_b_o,
  input  logic             write_i,
  input  logic [Bits-1:0]  address_i,
  input  logic [WIDTH-1:0] data_i
);
  logic [WIDTH-1:0] words_q[WORDS];

  always_ff @(posedge clk_i) begin
    if (write_i) words_q[address_i] <= data_i;
    if (read_a_i) data_a_o <= write_i && address_a_i == address_i ? data_i : words_q[address_a_i];
    if (read_b_i) data_b_o <= write_i && address_b_i == address_i ? data_i : words_q[address_b_i];
  end
endmodule
