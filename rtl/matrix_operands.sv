// The operands of a tile: BLEN rows of vector SRAM are quantised, BLEN words per sub-array come from matrix SRAM, a row
// and a word per cycle. Both wait in a first buffer until the tile is complete, because its references need all scales;
// then they move to a second one, which sends a term per cycle to the array while the next tile arrives.
//
//   vector SRAM --> mx_encode --> register --> first buffer --> second --> mx_decode --> register --> array
//   matrix SRAM -------------------------------> first buffer --> second --> mx_decode --> register --> array
`include "assert.svh"
module matrix_operands #(
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int ELEMENT_A = 1,
  parameter int RULE_A = 0,
  parameter int BLOCK_A = 8,
  parameter int ELEMENT_W = 0,
  parameter int ELEMENT_V = ELEMENT_W,  // the matrices' second format
  parameter int UP_W = 0,               // mx_decode_two.sv
  parameter int UP_V = 0,
  localparam int Banks = MLEN / BLEN,
  localparam int Term = $clog2(BLEN),
  localparam int ABits = ELEMENT_A == 0 || ELEMENT_A == 2 ? 4 : ELEMENT_A == 3 || ELEMENT_A == 4 ? 6 : 8,
  localparam int FirstBits = ELEMENT_W == 0 || ELEMENT_W == 2 ? 4 : ELEMENT_W == 3 || ELEMENT_W == 4 ? 6 : 8,
  localparam int SecondBits = ELEMENT_V == 0 || ELEMENT_V == 2 ? 4 : ELEMENT_V == 3 || ELEMENT_V == 4 ? 6 : 8,
  localparam int WBits = FirstBits > SecondBits ? FirstBits : SecondBits,
  localparam int AWidth = ELEMENT_A == 0 ? 4 : ELEMENT_A == 1 ? 8 : ELEMENT_A == 2 ? 5 : ELEMENT_A == 3 ? 7
                                                  : ELEMENT_A == 4 ? 10 : 19,
  localparam int FirstFixed = ELEMENT_W == 0 ? 4 : ELEMENT_W == 1 ? 8 : ELEMENT_W == 2 ? 5 : ELEMENT_W == 3 ? 7
                                                  : ELEMENT_W == 4 ? 10 : 19,
  localparam int SecondFixed = ELEMENT_V == 0 ? 4 : ELEMENT_V == 1 ? 8 : ELEMENT_V == 2 ? 5 : ELEMENT_V == 3 ? 7
                                                  : ELEMENT_V == 4 ? 10 : 19,
  localparam int FirstWidth = FirstFixed + UP_W,
  localparam int SecondWidth = SecondFixed + UP_V,
  localparam int WWidth = FirstWidth > SecondWidth ? FirstWidth : SecondWidth,
  localparam int Word = BLEN * WBits + 10
) (
  input  logic                         clk_i,
  input  logic                         rst_ni,
  input  logic                         valid_i,       // a row of lanes, and the word requested in this cycle
  input  logic [Term-1:0]              index_i,       // of both
  input  logic [16*MLEN-1:0]           lanes_i,
  input  logic [Banks*Word-1:0]        words_i,       // a cycle later
  input  logic                         transposed_i,  // with the last row
  input  logic                         second_i,      // the format of the words in the second buffer
  output logic                         load_o,        // a tile moves to the second buffer
  output logic                         start_o,       // a cycle later: its scales are there
  output logic                         transposed_o,
  output logic [BLEN*Banks*10-1:0]     a_scales_o,    // {NaN, zero, scale} of (row, sub-array)
  output logic [Banks*BLEN*10-1:0]     w_scales_o,    // of (sub-array, word)
  output logic                         term_o,        // a cycle after start_o: terms
  output logic [Term-1:0]              term_index_o,
  output logic                         term_transposed_o,
  output logic [Banks*BLEN*AWidth-1:0] a_o,           // of (sub-array, row)
  output logic [Banks*BLEN*9-1:0]      a_term_scales_o,  // {zero, scale}
  output logic [Banks*BLEN*WWidth-1:0] w_o,           // of (sub-array, column)
  output logic [Banks*BLEN*9-1:0]      w_term_scales_o
);
  localparam int Blocks = MLEN / BLOCK_A;

  logic [MLEN*ABits-1:0] codes, codes_q;
  logic [Blocks*10-1:0] scales, scales_q;
  generate
    for (genvar b = 0; b < Blocks; b++) begin : g_encode
      mx_encode #(.ELEMENT(ELEMENT_A), .RULE(RULE_A), .BLOCK(BLOCK_A)) i_encode (
        .lanes_i(lanes_i[16*BLOCK_A*b+:16*BLOCK_A]), .codes_o(codes[ABits*BLOCK_A*b+:ABits*BLOCK_A]),
        .scale_o(scales[10*b+:8]), .zero_o(scales[10*b+8]), .nan_o(scales[10*b+9])
      );
    end
  endgenerate

  logic arrives_q, last_q, transposed_q, load_q, load_transposed_q;
  logic [Term-1:0] index_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      arrives_q <= 1'b0;
      load_q <= 1'b0;
    end else begin
      arrives_q <= valid_i;
      load_q <= arrives_q && last_q;
    end
  end
  always_ff @(posedge clk_i) begin
    codes_q <= codes;
    scales_q <= scales;
    index_q <= index_i;
    last_q <= index_i == Term'(BLEN - 1);
    transposed_q <= transposed_i;
    load_transposed_q <= transposed_q;
  end

  // Buffers.
  logic [BLEN*MLEN*ABits-1:0] a_first_q, a_second_q;
  logic [BLEN*Blocks*10-1:0] a_scales_first_q, a_scales_second_q;
  logic [BLEN*Banks*Word-1:0] w_first_q, w_second_q;  // (word, sub-array)
  logic second_transposed_q;
  assign load_o = load_q;
  always_ff @(posedge clk_i) begin
    if (arrives_q) begin
      a_first_q[32'(index_q)*MLEN*ABits+:MLEN*ABits] <= codes_q;
      a_scales_first_q[32'(index_q)*Blocks*10+:Blocks*10] <= scales_q;
      w_first_q[32'(index_q)*Banks*Word+:Banks*Word] <= words_i;
    end
    if (load_q) begin
      a_second_q <= a_first_q;
      a_scales_second_q <= a_scales_first_q;
      w_second_q <= w_first_q;
      second_transposed_q <= load_transposed_q;
    end
  end

  logic sends_q;
  logic [Term-1:0] send_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      sends_q <= 1'b0;
      term_o <= 1'b0;
    end else begin
      sends_q <= load_q || (sends_q && send_q != Term'(BLEN - 1));
      term_o <= sends_q;
    end
  end
  always_ff @(posedge clk_i) begin
    send_q <= load_q ? '0 : send_q + 1'b1;
    term_index_o <= send_q;
    term_transposed_o <= second_transposed_q;
  end
  assign start_o = sends_q && send_q == '0;
  assign transposed_o = second_transposed_q;

  generate
    for (genvar s = 0; s < Banks; s++) begin : g_bank
      for (genvar r = 0; r < BLEN; r++) begin : g_lane
        localparam int Out = s * BLEN + r;
        localparam int Block = s * BLEN / BLOCK_A;
        assign a_scales_o[(r*Banks+s)*10+:10] = a_scales_second_q[(r*Blocks+Block)*10+:10];
        assign w_scales_o[Out*10+:10] = w_second_q[(r*Banks+s)*Word+BLEN*WBits+:10];

        // Input row r; weights of column r.
        logic [ABits-1:0] a_code;
        logic [WBits-1:0] w_code;
        logic [Word-1:0] word;
        logic signed [AWidth-1:0] a;
        logic signed [WWidth-1:0] w;
        logic a_special, w_special;
        assign a_code = a_second_q[(r*MLEN+s*BLEN+32'(send_q))*ABits+:ABits];
        assign word = w_second_q[((second_transposed_q ? r : 32'(send_q))*Banks+s)*Word+:Word];
        assign w_code = word[(second_transposed_q ? 32'(send_q) : r)*WBits+:WBits];
        mx_decode #(.ELEMENT(ELEMENT_A)) i_a (.code_i(a_code), .fixed_o(a), .special_o(a_special));
        mx_decode_two #(.FIRST(ELEMENT_W), .SECOND(ELEMENT_V), .FIRST_UP(UP_W), .SECOND_UP(UP_V)) i_w (
          .code_i(w_code), .second_i, .fixed_o(w), .special_o(w_special)
        );
        always_ff @(posedge clk_i) begin
          a_o[Out*AWidth+:AWidth] <= a;
          w_o[Out*WWidth+:WWidth] <= w;
          a_term_scales_o[Out*9+:9] <= {a_scales_o[(r*Banks+s)*10+8+:2] != 2'b00, a_scales_o[(r*Banks+s)*10+:8]};
          w_term_scales_o[Out*9+:9] <= {word[BLEN*WBits+8+:2] != 2'b00, word[BLEN*WBits+:8]};
        end
        logic unused_special;  // NaN elements mark their block
        assign unused_special = a_special ^ w_special;
      end
    end
  endgenerate

  `DLLM_ASSERT(a_tiles_do_not_overlap, !(load_q && sends_q && send_q != Term'(BLEN - 1)))
endmodule
