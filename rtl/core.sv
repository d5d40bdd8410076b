// The core: the engine, the matrix unit with its control registers, and the DMA engine with an AXI4 master. The engine
// hands matrix instructions and transfers to the units and waits; what they need of vector SRAM goes through its ports.
module core #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int VRAM_ROWS = 256,
  parameter int FP_WORDS = 256,
  parameter int INT_WORDS = 256,
  parameter int PROGRAM_WORDS = 1024,
  parameter int TILES = 2,          // of matrix SRAM
  parameter int BEAT = 8,           // bytes of the memory's data bus
  parameter int ELEMENT_INPUT = 1,  // mx_formats.svh; the array's input
  parameter int RULE_INPUT = 0,
  parameter int BLOCK_INPUT = 8,
  parameter int ELEMENT_WEIGHT = 0, // weights, and keys and values as matrices
  parameter int RULE_WEIGHT = 0,
  parameter int BLOCK_WEIGHT = 8,
  parameter int ELEMENT_ACTIVATION = 7,
  parameter int RULE_ACTIVATION = 0,
  parameter int BLOCK_ACTIVATION = 1,
  parameter int ELEMENT_KV = 7,     // keys and values as vectors
  parameter int RULE_KV = 0,
  parameter int BLOCK_KV = 1,
  parameter int PREFETCH_M_ROWS = MLEN,
  parameter int STORE_V_ROWS = 4,
  localparam int Row = 16 * VLEN,
  localparam int PcBits = $clog2(PROGRAM_WORDS)
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              start_i,
  input  logic [PcBits:0]   length_i,
  input  logic [31:0]       prefetch_rows_i,
  input  logic [63:0]       memory_bytes_i,
  output logic              running_o,
  output logic [2:0]        trap_o,
  input  logic              host_write_i,
  input  logic [1:0]        host_space_i,
  input  logic [15:0]       host_address_i,
  input  logic [Row-1:0]    host_data_i,
  output logic [Row-1:0]    host_data_o,
  output logic              issue_o,
  output logic [PcBits-1:0] pc_o,
  output logic [511:0]      gp_o,
  output logic [255:0]      fp_o,
  output logic              ar_valid_o,
  input  logic              ar_ready_i,
  output logic [63:0]       ar_address_o,
  output logic [7:0]        ar_length_o,
  input  logic              r_valid_i,
  output logic              r_ready_o,
  input  logic [8*BEAT-1:0] r_data_i,
  input  logic              r_last_i,
  output logic              aw_valid_o,
  input  logic              aw_ready_i,
  output logic [63:0]       aw_address_o,
  output logic [7:0]        aw_length_o,
  output logic              w_valid_o,
  input  logic              w_ready_i,
  output logic [8*BEAT-1:0] w_data_o,
  output logic [BEAT-1:0]   w_strobe_o,
  output logic              w_last_o,
  input  logic              b_valid_i,
  output logic              b_ready_o
);
  `include "mx_formats.svh"
  `include "traps.svh"
  localparam int RowBits = $clog2(VRAM_ROWS);
  localparam int MatrixBits = $clog2(TILES * MLEN);
  localparam int WBits = mx_bits(ELEMENT_WEIGHT);
  localparam int Count = $clog2(MLEN) + 1;

  logic external, unit_done;
  logic [31:0] word, d, a, b;
  logic [2:0] unit_trap;
  logic [63:0] address;
  logic [31:0] scales, stride, prefetch_v_rows;
  logic unit_read, unit_write;
  logic [RowBits-1:0] unit_read_row, unit_write_row;
  logic [VLEN-1:0] unit_lanes;
  logic [Row-1:0] row, unit_data;
  /* verilator lint_off PINCONNECTEMPTY */
  engine #(
    .VLEN(VLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS), .FP_WORDS(FP_WORDS), .INT_WORDS(INT_WORDS),
    .PROGRAM_WORDS(PROGRAM_WORDS), .EXTERNAL(1'b1)
  ) i_engine (
    .clk_i, .rst_ni, .start_i, .length_i, .prefetch_rows_i, .running_o, .trap_o, .host_write_i, .host_space_i,
    .host_address_i, .host_data_i, .host_data_o, .dma_request_o(), .dma_address_o(address), .dma_offset_o(),
    .dma_scales_o(scales), .dma_stride_o(stride), .dma_rows_o(prefetch_v_rows), .dma_target_o(), .dma_mode_o(),
    .dma_write_i(1'b0), .dma_row_i('0), .dma_data_i('0), .dma_done_i(1'b0), .external_o(external),
    .external_word_o(word), .external_d_o(d), .external_a_o(a), .external_b_o(b), .external_done_i(unit_done),
    .external_trap_i(unit_trap), .external_read_i(unit_read), .external_read_row_i(unit_read_row),
    .external_data_o(row), .external_write_i(unit_write), .external_write_row_i(unit_write_row),
    .external_lanes_i(unit_lanes), .external_data_i(unit_data), .issue_o, .pc_o, .gp_o, .fp_o
  );
  /* verilator lint_on PINCONNECTEMPTY */

  logic to_dma, to_registers, to_matrix;
  assign to_dma = word[5:0] == dllm_isa_pkg::OP_H_PREFETCH_M || word[5:0] == dllm_isa_pkg::OP_H_PREFETCH_V ||
                  word[5:0] == dllm_isa_pkg::OP_H_STORE_V;
  assign to_registers = word[5:0] == dllm_isa_pkg::OP_C_SET_CSR;
  assign to_matrix = !to_dma && !to_registers;

  logic value_bad, side_by_side;
  logic [31:0] scale, prefetch_m_rows, store_v_rows, head_stride;
  logic [Count-1:0] rows, cols, mm_rows;
  logic [$clog2(MLEN/HLEN):0] group;
  matrix_registers #(
    .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN),
    .FORMAT_WEIGHT(mx_number(ELEMENT_WEIGHT, RULE_WEIGHT, BLOCK_WEIGHT)),
    .FORMAT_ACTIVATION(mx_number(ELEMENT_ACTIVATION, RULE_ACTIVATION, BLOCK_ACTIVATION)),
    .FORMAT_VECTOR_KV(mx_number(ELEMENT_KV, RULE_KV, BLOCK_KV)),
    .FORMAT_INPUT(mx_number(ELEMENT_INPUT, RULE_INPUT, BLOCK_INPUT)), .PREFETCH_M_ROWS(PREFETCH_M_ROWS),
    .STORE_V_ROWS(STORE_V_ROWS)
  ) i_registers (
    .clk_i, .rst_ni, .start_i, .set_i(external && to_registers), .number_i(word[31:14]), .value_i(d),
    .bad_o(value_bad), .scale_o(scale), .prefetch_rows_o(prefetch_m_rows), .store_rows_o(store_v_rows), .rows_o(rows),
    .cols_o(cols), .group_o(group), .head_stride_o(head_stride), .side_by_side_o(side_by_side), .mm_rows_o(mm_rows)
  );

  logic matrix_done, matrix_read, matrix_write, load;
  logic [2:0] matrix_trap, dma_trap;
  logic [RowBits-1:0] matrix_read_row, matrix_write_row;
  logic [VLEN-1:0] matrix_lanes;
  logic [Row-1:0] matrix_data;
  logic [MatrixBits-1:0] load_row;
  logic [MLEN*WBits-1:0] load_codes;
  logic [MLEN/BLOCK_WEIGHT*8-1:0] load_scales;
  matrix_unit #(
    .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS), .TILES(TILES),
    .ELEMENT_A(ELEMENT_INPUT), .RULE_A(RULE_INPUT), .BLOCK_A(BLOCK_INPUT), .ELEMENT_W(ELEMENT_WEIGHT),
    .RULE_W(RULE_WEIGHT), .BLOCK_W(BLOCK_WEIGHT)
  ) i_matrix (
    .clk_i, .rst_ni, .start_i, .valid_i(external && to_matrix), .word_i(word), .d_i(d), .a_i(a), .b_i(b),
    .done_o(matrix_done), .trap_o(matrix_trap), .scale_i(scale), .rows_i(rows), .cols_i(cols), .group_i(group),
    .head_stride_i(head_stride), .side_by_side_i(side_by_side), .mm_rows_i(mm_rows), .read_o(matrix_read),
    .read_row_o(matrix_read_row), .read_data_i(row), .write_o(matrix_write), .write_row_o(matrix_write_row),
    .write_lanes_o(matrix_lanes), .write_data_o(matrix_data), .load_i(load), .load_row_i(load_row),
    .load_codes_i(load_codes), .load_scales_i(load_scales)
  );

  logic dma_done, dma_read, dma_write;
  logic [RowBits-1:0] dma_read_row, dma_write_row;
  logic [Row-1:0] dma_data;
  dma #(
    .VLEN(VLEN), .MLEN(MLEN), .VRAM_ROWS(VRAM_ROWS), .MATRIX_ROWS(TILES * MLEN), .BEAT(BEAT),
    .ELEMENT_M(ELEMENT_WEIGHT), .BLOCK_M(BLOCK_WEIGHT), .ELEMENT_A(ELEMENT_ACTIVATION), .RULE_A(RULE_ACTIVATION),
    .BLOCK_A(BLOCK_ACTIVATION), .ELEMENT_B(ELEMENT_KV), .RULE_B(RULE_KV), .BLOCK_B(BLOCK_KV)
  ) i_dma (
    .clk_i, .rst_ni, .valid_i(external && to_dma), .word_i(word), .address_i(address), .offset_i(a),
    .scales_i(scales), .stride_i(stride), .target_i(d), .prefetch_m_rows_i(prefetch_m_rows),
    .prefetch_v_rows_i(prefetch_v_rows), .store_v_rows_i(store_v_rows), .memory_bytes_i, .done_o(dma_done),
    .trap_o(dma_trap), .read_o(dma_read), .read_row_o(dma_read_row), .read_data_i(row), .write_o(dma_write),
    .write_row_o(dma_write_row), .write_data_o(dma_data), .load_o(load), .load_row_o(load_row),
    .load_codes_o(load_codes), .load_scales_o(load_scales), .ar_valid_o, .ar_ready_i, .ar_address_o, .ar_length_o,
    .r_valid_i, .r_ready_o, .r_data_i, .r_last_i, .aw_valid_o, .aw_ready_i, .aw_address_o, .aw_length_o, .w_valid_o,
    .w_ready_i, .w_data_o, .w_strobe_o, .w_last_o, .b_valid_i, .b_ready_o
  );

  assign unit_done = to_dma ? dma_done : to_registers ? external : matrix_done;
  assign unit_trap = to_dma ? dma_trap : to_registers ? (value_bad ? TrapControl : TrapNone) : matrix_trap;
  assign unit_read = to_dma ? dma_read : matrix_read;
  assign unit_read_row = to_dma ? dma_read_row : matrix_read_row;
  assign unit_write = dma_write || matrix_write;
  assign unit_write_row = dma_write ? dma_write_row : matrix_write_row;
  assign unit_lanes = dma_write ? '1 : matrix_lanes;
  assign unit_data = dma_write ? dma_data : matrix_data;

  axi_checks #(.BEAT(BEAT)) i_checks (
    .clk_i, .rst_ni, .ar_valid_i(ar_valid_o), .ar_ready_i, .ar_address_i(ar_address_o), .ar_length_i(ar_length_o),
    .r_valid_i, .r_ready_i(r_ready_o), .r_last_i, .aw_valid_i(aw_valid_o), .aw_ready_i, .aw_address_i(aw_address_o),
    .aw_length_i(aw_length_o), .w_valid_i(w_valid_o), .w_ready_i, .w_data_i(w_data_o), .w_strobe_i(w_strobe_o),
    .w_last_i(w_last_o), .b_valid_i, .b_ready_i(b_ready_o)
  );
endmodule
