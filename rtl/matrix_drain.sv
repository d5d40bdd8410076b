// Write-outs: results leave the accumulators a row of BLEN lanes per cycle, those of all heads whose lanes are in the
// same row of vector SRAM together. Entries are read in one cycle, rounded and written in the next.
//
//   idle array --> request(row, column block, first head) --> accumulators --> [* scale] --> BF16 --> lanes of a row
`include "assert.svh"
module matrix_drain #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int VRAM_ROWS = 256,
  parameter int ACC = 32,
  localparam int Banks = MLEN / BLEN,
  localparam int Heads = MLEN / HLEN,
  localparam int Count = $clog2(MLEN) + 1,
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int Entries = Banks * Banks * BLEN + Banks + BLEN + 1,
  localparam int EntryBits = $clog2(Entries)
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        start_i,
  input  logic                        idle_i,         // the array: all results are in the accumulators
  input  logic [1:0]                  kind_i,         // 0 M_MM, 1 M_MV, 2 M_BMM, 3 M_BMV
  input  logic                        empty_i,        // nothing was accumulated
  input  logic [32:0]                 address_i,
  input  logic [31:0]                 row_stride_i,   // of M_MM_WO, in rows; 0: 1
  input  logic [31:0]                 head_stride_i,
  input  logic [31:0]                 scale_i,
  input  logic [Count-1:0]            mm_rows_i,
  input  logic [Count-1:0]            rows_i,
  input  logic [Count-1:0]            cols_i,
  input  logic [11:0]                 point_i,        // bits of the values behind the point
  output logic [2:0]                  trap_o,
  output logic [EntryBits-1:0]        entry_o,        // to read
  input  logic [Heads*BLEN*ACC-1:0]   values_i,       // of (head, column), a cycle later
  input  logic [Heads*BLEN*10-1:0]    references_i,
  input  logic [Heads*BLEN-1:0]       nans_i,
  output logic                        write_o,
  output logic [RowBits-1:0]          row_o,
  output logic [VLEN-1:0]             lanes_o,        // that are written
  output logic [16*VLEN-1:0]          data_o,
  output logic                        done_o
);
`include "traps.svh"
  localparam int Lane = $clog2(VLEN);
  localparam int Within = $clog2(BLEN);
  localparam int Block = Lane - Within;
  localparam int HeadBits = Heads == 1 ? 1 : $clog2(Heads);
  logic heads, one_row;
  assign heads = kind_i[1];
  assign one_row = kind_i[0];

  // Where the heads start.
  logic [Count-1:0] rows, cols;
  logic [47:0] stride, step, last_row;
  logic [47:0] bases[Heads];
  logic crosses;
  assign rows = one_row ? Count'(1) : heads ? rows_i : mm_rows_i;
  assign cols = heads ? cols_i : Count'(BLEN);
  assign stride = head_stride_i == 32'd0 ? 48'(rows) << Lane : 48'(head_stride_i);
  assign step = heads || row_stride_i == 32'd0 ? 48'd1 : 48'(row_stride_i);
  always_comb begin
    crosses = 1'b0;
    for (int h = 0; h < Heads; h++) begin
      bases[h] = 48'(address_i) + (heads ? 48'(h) * stride : '0);
      if (48'(bases[h][Lane-1:0]) + 48'(cols) > 48'(VLEN)) crosses = 1'b1;
    end
    last_row = (bases[Heads-1] >> Lane) + (48'(rows) - 48'd1) * step;
    trap_o = address_i[$clog2(BLEN)-1:0] != '0 || crosses || last_row >= 48'(VRAM_ROWS) ||
             (heads && Heads > 1 && stride < 48'(cols)) ? TrapRow : TrapNone;
  end

  // Counters: heads innermost, then column blocks, then rows.
  logic active_q, requests, last_head, last_block, last_row_now;
  logic [Count-1:0] row_q, block_q;
  logic [HeadBits-1:0] head_q;
  logic [RowBits-1:0] offset_q, here;
  logic [Heads-1:0] together;
  assign requests = active_q && idle_i;
  assign here = RowBits'(bases[head_q] >> Lane);
  always_comb begin
    together = '0;
    for (int h = 0; h < Heads; h++)
      together[h] = h >= 32'(head_q) && RowBits'(bases[h] >> Lane) == here && (heads || h == 0);
    last_head = !heads || together[Heads-1];
  end
  assign last_block = block_q == Count'(32'(cols) / BLEN - 1);
  assign last_row_now = row_q == rows - 1'b1;
  always_comb begin
    case (kind_i)
      2'd0: entry_o = EntryBits'(Banks * Banks * BLEN + Banks) + EntryBits'(row_q);
      2'd1: entry_o = EntryBits'(Banks * Banks * BLEN + Banks + BLEN);
      2'd2: entry_o = EntryBits'(((32'(row_q) / BLEN) * Banks + 32'(block_q)) * BLEN + 32'(row_q) % BLEN);
      default: entry_o = EntryBits'(Banks * Banks * BLEN) + EntryBits'(block_q);
    endcase
  end
  logic [HeadBits:0] joined;
  always_comb begin
    joined = '0;
    for (int h = 0; h < Heads; h++) joined = joined + (HeadBits + 1)'(together[h]);
  end
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) active_q <= 1'b0;
    else active_q <= start_i || (active_q && !(requests && last_head && last_block && last_row_now));
  end
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      row_q <= '0;
      block_q <= '0;
      head_q <= '0;
      offset_q <= '0;
    end else if (requests) begin
      head_q <= last_head ? '0 : head_q + HeadBits'(joined);
      if (last_head) block_q <= last_block ? '0 : block_q + 1'b1;
      if (last_head && last_block) begin
        row_q <= row_q + 1'b1;
        offset_q <= offset_q + RowBits'(step);
      end
    end
  end

  // Rounding, and the lanes.
  logic write_q, done_q;
  logic [Heads-1:0] together_q;
  logic [Heads*Block-1:0] blocks_q;  // of BLEN lanes in the row
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) {write_q, done_q} <= 2'b00;
    else begin
      write_q <= requests;
      done_q <= requests && last_head && last_block && last_row_now;
    end
  end
  always_ff @(posedge clk_i) begin
    together_q <= together;
    row_o <= here + offset_q;
    for (int h = 0; h < Heads; h++)
      blocks_q[Block*h+:Block] <= bases[h][Lane-1:Within] + Block'(block_q);
  end
  assign write_o = write_q;
  assign done_o = done_q;

  logic [Heads*BLEN*16-1:0] results;
  generate
    for (genvar n = 0; n < Heads * BLEN; n++) begin : g_round
      logic [15:0] plain, scaled;
      logic [31:0] single, product;
      logic signed [11:0] exponent;
      assign exponent = 12'($signed(references_i[10*n+:10])) - point_i;
      fixed_to_fp #(.WIDTH(ACC)) i_plain (.value_i(values_i[ACC*n+:ACC]), .exponent_i(exponent), .fp_o(plain));
      fixed_to_fp #(.WIDTH(ACC), .MAN(23)) i_single (
        .value_i(values_i[ACC*n+:ACC]), .exponent_i(exponent), .fp_o(single)
      );
      fp_multiply i_scale (
        .a_i(empty_i ? 32'd0 : nans_i[n] ? 32'h7fc00000 : single), .b_i(scale_i), .product_o(product)
      );
      f32_to_bf16 i_scaled (.value_i(product), .bf16_o(scaled));
      assign results[16*n+:16] = heads ? scaled : empty_i ? 16'h0000 : nans_i[n] ? 16'h7fc0 : plain;
    end
  endgenerate
  always_comb begin
    lanes_o = '0;
    data_o = '0;
    for (int h = 0; h < Heads; h++)
      if (together_q[h]) begin
        lanes_o[BLEN*32'(blocks_q[Block*h+:Block])+:BLEN] = '1;
        data_o[16*BLEN*32'(blocks_q[Block*h+:Block])+:16*BLEN] = results[16*BLEN*h+:16*BLEN];
      end
  end

  `DLLM_ASSERT(a_one_write_out, !(start_i && active_q))
endmodule
