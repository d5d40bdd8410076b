// A transfer's addresses, strides and lengths in bytes from its descriptor in elements, and its traps. Formats as in
// mx_formats.svh: of matrices (M; V with prec 1), of vectors with prec 0 (A) and prec 1 (B).
module dma_plan #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int VRAM_ROWS = 256,
  parameter int MATRIX_ROWS = 32,
  parameter int ELEMENT_M = 0,
  parameter int ELEMENT_V = 0,
  parameter int BLOCK_M = 8,
  parameter int ELEMENT_A = 7,
  parameter int BLOCK_A = 1,
  parameter int ELEMENT_B = 7,
  parameter int BLOCK_B = 1,
  parameter int ROW_BITS = 16
) (
  input  logic                matrix_i,
  input  logic                second_i,        // prec 1
  input  logic                plain_i,         // BF16 instead of A
  input  logic                strided_i,       // rows STRIDE_REG elements apart
  input  logic [63:0]         address_i,
  input  logic [31:0]         offset_i,        // elements
  input  logic [31:0]         scales_i,        // bytes from the address to the scales
  input  logic [31:0]         stride_i,
  input  logic [31:0]         rows_i,
  input  logic [31:0]         target_i,        // elements of SRAM
  input  logic [63:0]         memory_bytes_i,
  output logic                scaled_o,
  output logic [63:0]         elements_o,
  output logic [63:0]         scales_o,
  output logic [63:0]         element_stride_o,
  output logic [63:0]         scale_stride_o,
  output logic [ROW_BITS-1:0] element_bytes_o,
  output logic [ROW_BITS-1:0] scale_bytes_o,
  output logic [2:0]          trap_o
);
  `include "mx_formats.svh"
  `include "traps.svh"
  logic [31:0] stride, cols;
  logic [4:0] bits;
  logic [2:0] block;  // log2
  assign cols = matrix_i ? 32'(MLEN) : 32'(VLEN);
  assign stride = strided_i ? stride_i : cols;
  always_comb begin
    if (matrix_i) {bits, block} = {second_i ? 5'(mx_bits(ELEMENT_V)) : 5'(mx_bits(ELEMENT_M)), 3'($clog2(BLOCK_M))};
    else if (second_i) {bits, block} = {5'(mx_bits(ELEMENT_B)), 3'($clog2(BLOCK_B))};
    else if (plain_i) {bits, block} = {5'd16, 3'd0};
    else {bits, block} = {5'(mx_bits(ELEMENT_A)), 3'($clog2(BLOCK_A))};
  end
  assign scaled_o = bits != 5'd16;

  logic [63:0] offset_bits, stride_bits;
  assign offset_bits = 64'(offset_i) * 64'(bits);
  assign stride_bits = 64'(stride) * 64'(bits);
  assign elements_o = address_i + (offset_bits >> 3);
  assign scales_o = address_i + 64'(scales_i) + (64'(offset_i) >> block);
  assign element_stride_o = stride_bits >> 3;
  assign scale_stride_o = 64'(stride) >> block;
  assign element_bytes_o = ROW_BITS'((64'(cols) * 64'(bits)) >> 3);
  assign scale_bytes_o = ROW_BITS'(cols >> block);

  logic [31:0] mask;
  logic uneven, outside, target_bad;
  assign mask = (32'd1 << block) - 32'd1;
  assign uneven = ((offset_i | stride) & mask) != 32'd0 || offset_bits[2:0] != 3'd0 || stride_bits[2:0] != 3'd0;
  function automatic logic beyond(input logic [63:0] first, input logic [63:0] step, input logic [31:0] rows,
                                  input logic [ROW_BITS-1:0] length, input logic [63:0] size);
    beyond = 96'(first) + 96'(step) * (96'(rows) - 96'd1) + 96'(length) > 96'(size);
  endfunction
  assign outside = address_i > memory_bytes_i ||
                   beyond(elements_o, element_stride_o, rows_i, element_bytes_o, memory_bytes_i) ||
                   (scaled_o && beyond(scales_o, scale_stride_o, rows_i, scale_bytes_o, memory_bytes_i));
  assign target_bad =
      matrix_i ? target_i % 32'(MLEN) != 32'd0 || 33'(target_i) / 33'(MLEN) + 33'(rows_i) > 33'(MATRIX_ROWS)
               : target_i % 32'(VLEN) != 32'd0 || 33'(target_i) / 33'(VLEN) + 33'(rows_i) > 33'(VRAM_ROWS);
  always_comb begin
    trap_o = TrapNone;
    if (target_bad) trap_o = TrapRow;
    else if (uneven || outside) trap_o = TrapWord;
  end
endmodule
