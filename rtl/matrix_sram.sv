// Matrix SRAM in as many banks as there are sub-arrays. A tile is a square of blocks of BLEN lanes of a row; block b of
// a row in row block r is in bank r + b (modulo the banks). So a row is read or written in one cycle (the transposed
// order), and so is a row of each of the row blocks in one block of lanes (the plain order).
//
//        lanes   b=0 1 2 3            request of sub-array s: row block r(s), lane block b(s), row within the block
//   row block 0   0 1 2 3   bank      transposed: r(s) = r, b(s) = b0 + s     plain: r(s) = r0 + s, b(s) = b
//             1   1 2 3 0
//             2   2 3 0 1
//             3   3 0 1 2
`include "assert.svh"
module matrix_sram #(
  parameter int BLEN = 4,
  parameter int BANKS = 4,
  parameter int WORD = 26,   // bits of BLEN lanes with their scale
  parameter int ROWS = 128,
  localparam int Index = $clog2(BANKS),
  localparam int RowBits = $clog2(ROWS),
  localparam int Within = $clog2(BLEN),
  localparam int Tiles = RowBits - Index - Within
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,        // only for the assertion
  input  logic                   write_i,
  input  logic [RowBits-1:0]     write_row_i,
  input  logic [BANKS*WORD-1:0]  write_data_i,  // by block of lanes
  input  logic                   read_i,
  input  logic [RowBits-1:0]     read_row_i,    // its tile and place within a row block count
  input  logic [BANKS*Index-1:0] row_blocks_i,  // by sub-array
  input  logic [BANKS*Index-1:0] lane_blocks_i,
  output logic [BANKS*WORD-1:0]  data_o         // by sub-array, a cycle later
);
  logic [BANKS*WORD-1:0] words;  // by bank
  logic [BANKS*Index-1:0] wanted, wanted_q, rows;
  always_comb begin
    rows = '0;
    for (int s = 0; s < BANKS; s++) begin
      wanted[Index*s+:Index] = row_blocks_i[Index*s+:Index] + lane_blocks_i[Index*s+:Index];
      rows[Index*wanted[Index*s+:Index]+:Index] = row_blocks_i[Index*s+:Index];
    end
  end
  always_ff @(posedge clk_i) if (read_i) wanted_q <= wanted;

  generate
    for (genvar q = 0; q < BANKS; q++) begin : g_bank
      logic [Index-1:0] block;
      logic [WORD-1:0] word_q;
      logic [WORD-1:0] words_q[ROWS];
      assign block = Index'(q) - write_row_i[Within+:Index];
      always_ff @(posedge clk_i) begin
        if (write_i) words_q[write_row_i] <= write_data_i[WORD*32'(block)+:WORD];
        if (read_i) word_q <= words_q[{read_row_i[RowBits-1-:Tiles], rows[Index*q+:Index], read_row_i[Within-1:0]}];
      end
      assign words[WORD*q+:WORD] = word_q;
      assign data_o[WORD*q+:WORD] = words[WORD*32'(wanted_q[Index*q+:Index])+:WORD];
    end
  endgenerate

  logic unused_bits;
  assign unused_bits = ^read_row_i[Within+:Index];

  // Every sub-array gets a row of the block that it asks for: no two need different rows of one bank.
  logic [BANKS-1:0] other_row;
  always_comb
    for (int s = 0; s < BANKS; s++)
      other_row[s] = rows[Index*wanted[Index*s+:Index]+:Index] != row_blocks_i[Index*s+:Index];
  `DLLM_ASSERT(a_bank_is_read_once, !(read_i && other_row != '0))
endmodule
