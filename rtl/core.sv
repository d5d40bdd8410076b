// The core: the engine, the matrix unit, and the DMA engine with an AXI4 master. The engine has the control
// registers. It hands matrix instructions and transfers to the units and waits; what they need of vector SRAM goes
// through its ports.
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
  parameter int ELEMENT_WEIGHT = 0, // weights
  parameter int RULE_WEIGHT = 0,
  parameter int BLOCK_WEIGHT = 8,
  parameter int ELEMENT_MATRIX_KV = ELEMENT_WEIGHT,  // keys and values as matrices, in blocks of the same length
  parameter int RULE_MATRIX_KV = RULE_WEIGHT,
  parameter int ELEMENT_ACTIVATION = 7,  // vectors, if the control register does not say BF16
  parameter int RULE_ACTIVATION = 0,
  parameter int BLOCK_ACTIVATION = 1,
  parameter int ELEMENT_KV = 7,     // keys and values as vectors
  parameter int RULE_KV = 0,
  parameter int BLOCK_KV = 1,
  parameter int DRAWS = 0,          // a noise generator for V_RED_DRAW
  parameter int ADD_STAGES = 2,     // cycles of vector units
  parameter int MUL_STAGES = 1,
  parameter int EXP_STAGES = 1,
  parameter int RECI_STAGES = 2,
  parameter int MAX_STAGES = 4,
  parameter int SUM_STAGES = 8,
  parameter int SCAN_STAGES = 9,
  parameter int DRAW_STAGES = 36,
  localparam int Row = 16 * VLEN,
  localparam int Csrs = 27,
  localparam int PcBits = $clog2(PROGRAM_WORDS)
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              start_i,
  input  logic [PcBits:0]   length_i,
  input  logic [32*Csrs-1:0] csr_reset_i,
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
  output logic [32*Csrs-1:0] csr_o,
  output logic [511:0]      addresses_o,
  output logic [31:0]       scales_o,
  output logic [31:0]       stride_o,
  output logic [31:0]       mask_o,
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
  localparam int RowBits = $clog2(VRAM_ROWS);
  localparam int MatrixBits = $clog2(TILES * MLEN);
  localparam int WBits = mx_bits(ELEMENT_WEIGHT) > mx_bits(ELEMENT_MATRIX_KV) ? mx_bits(ELEMENT_WEIGHT)
                                                                              : mx_bits(ELEMENT_MATRIX_KV);
  localparam int Count = $clog2(MLEN) + 1;
  localparam int Heads = MLEN / HLEN;
  localparam int HeadBits = $clog2(Heads) + 1;
  // The formats of the units, in the order of the control registers.
  localparam logic [159:0] Formats = {mx_number(ELEMENT_INPUT, RULE_INPUT, BLOCK_INPUT),
                                      mx_number(ELEMENT_KV, RULE_KV, BLOCK_KV),
                                      mx_number(ELEMENT_ACTIVATION, RULE_ACTIVATION, BLOCK_ACTIVATION),
                                      mx_number(ELEMENT_MATRIX_KV, RULE_MATRIX_KV, BLOCK_WEIGHT),
                                      mx_number(ELEMENT_WEIGHT, RULE_WEIGHT, BLOCK_WEIGHT)};

  logic external, unit_done;
  logic [31:0] word, d, a, b;
  logic [2:0] unit_trap;
  logic [63:0] address;
  logic unit_read, unit_write;
  logic [RowBits-1:0] unit_read_row, unit_write_row;
  logic [VLEN-1:0] unit_lanes;
  logic [Row-1:0] row, unit_data;
  /* verilator lint_off PINCONNECTEMPTY */
  engine #(
    .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS), .FP_WORDS(FP_WORDS),
    .INT_WORDS(INT_WORDS), .PROGRAM_WORDS(PROGRAM_WORDS), .EXTERNAL(1'b1), .FORMATS(Formats),
    .DRAWS(DRAWS), .ADD_STAGES(ADD_STAGES), .MUL_STAGES(MUL_STAGES), .EXP_STAGES(EXP_STAGES),
    .RECI_STAGES(RECI_STAGES), .MAX_STAGES(MAX_STAGES), .SUM_STAGES(SUM_STAGES), .SCAN_STAGES(SCAN_STAGES),
    .DRAW_STAGES(DRAW_STAGES)
  ) i_engine (
    .clk_i, .rst_ni, .start_i, .length_i, .csr_reset_i, .running_o, .trap_o, .host_write_i, .host_space_i,
    .host_address_i, .host_data_i, .host_data_o, .dma_request_o(), .dma_address_o(address), .dma_offset_o(),
    .dma_scales_o(scales_o), .dma_stride_o(stride_o), .dma_rows_o(), .dma_target_o(), .dma_mode_o(),
    .dma_write_i(1'b0), .dma_row_i('0), .dma_data_i('0), .dma_done_i(1'b0), .external_o(external),
    .external_word_o(word), .external_d_o(d), .external_a_o(a), .external_b_o(b), .external_done_i(unit_done),
    .external_trap_i(unit_trap), .external_read_i(unit_read), .external_read_row_i(unit_read_row),
    .external_data_o(row), .external_write_i(unit_write), .external_write_row_i(unit_write_row),
    .external_lanes_i(unit_lanes), .external_data_i(unit_data), .issue_o, .pc_o, .gp_o, .fp_o,
    .csr_o, .addresses_o, .mask_o
  );
  /* verilator lint_on PINCONNECTEMPTY */

  logic to_dma;
  assign to_dma = word[5:0] == dllm_isa_pkg::OP_H_PREFETCH_M || word[5:0] == dllm_isa_pkg::OP_H_PREFETCH_V ||
                  word[5:0] == dllm_isa_pkg::OP_H_STORE_V;

  function automatic logic [31:0] csr(input logic [4:0] number);
    csr = csr_o[32*32'(number)+:32];
  endfunction
  logic [HeadBits-1:0] group;  // log2(bmm_group)
  always_comb begin
    group = '0;
    for (int i = 0; i <= $clog2(Heads); i++)
      if (csr_o[32*dllm_isa_pkg::CSR_BMM_GROUP+i]) group = HeadBits'(i);
  end

  logic matrix_done, matrix_read, matrix_write, load;
  logic [2:0] matrix_trap, dma_trap;
  logic [RowBits-1:0] matrix_read_row, matrix_write_row;
  logic [VLEN-1:0] matrix_lanes;
  logic [Row-1:0] matrix_data;
  logic [MatrixBits-1:0] load_row;
  logic load_second;
  logic [MLEN*WBits-1:0] load_codes;
  logic [MLEN/BLOCK_WEIGHT*8-1:0] load_scales;
  matrix_unit #(
    .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS), .TILES(TILES),
    .ELEMENT_A(ELEMENT_INPUT), .RULE_A(RULE_INPUT), .BLOCK_A(BLOCK_INPUT), .ELEMENT_W(ELEMENT_WEIGHT),
    .RULE_W(RULE_WEIGHT), .BLOCK_W(BLOCK_WEIGHT), .ELEMENT_V(ELEMENT_MATRIX_KV), .RULE_V(RULE_MATRIX_KV)
  ) i_matrix (
    .clk_i, .rst_ni, .start_i, .valid_i(external && !to_dma), .word_i(word), .d_i(d), .a_i(a), .b_i(b),
    .done_o(matrix_done), .trap_o(matrix_trap), .scale_i(csr(dllm_isa_pkg::CSR_BMM_SCALE)),
    .rows_i(Count'(csr(dllm_isa_pkg::CSR_BMM_ROWS))), .cols_i(Count'(csr(dllm_isa_pkg::CSR_BMM_COLS))), .group_i(group),
    .head_stride_i(csr(dllm_isa_pkg::CSR_BMM_HEAD_STRIDE)),
    .side_by_side_i(csr_o[32*dllm_isa_pkg::CSR_BMM_LAYOUT]),
    .mm_rows_i(Count'(csr(dllm_isa_pkg::CSR_MM_ROWS))), .read_o(matrix_read),
    .read_row_o(matrix_read_row), .read_data_i(row), .write_o(matrix_write), .write_row_o(matrix_write_row),
    .write_lanes_o(matrix_lanes), .write_data_o(matrix_data), .load_i(load), .load_row_i(load_row),
    .load_second_i(load_second), .load_codes_i(load_codes), .load_scales_i(load_scales)
  );

  logic dma_done, dma_read, dma_write;
  logic [RowBits-1:0] dma_read_row, dma_write_row;
  logic [Row-1:0] dma_data;
  dma #(
    .VLEN(VLEN), .MLEN(MLEN), .VRAM_ROWS(VRAM_ROWS), .MATRIX_ROWS(TILES * MLEN), .BEAT(BEAT),
    .ELEMENT_M(ELEMENT_WEIGHT), .ELEMENT_V(ELEMENT_MATRIX_KV), .BLOCK_M(BLOCK_WEIGHT),
    .ELEMENT_A(ELEMENT_ACTIVATION), .RULE_A(RULE_ACTIVATION), .BLOCK_A(BLOCK_ACTIVATION), .ELEMENT_B(ELEMENT_KV),
    .RULE_B(RULE_KV), .BLOCK_B(BLOCK_KV)
  ) i_dma (
    .clk_i, .rst_ni, .valid_i(external && to_dma), .word_i(word), .address_i(address), .offset_i(a),
    .scales_i(scales_o), .stride_i(stride_o), .target_i(d),
    .prefetch_m_rows_i(csr(dllm_isa_pkg::CSR_PREFETCH_M_ROWS)),
    .prefetch_v_rows_i(csr(dllm_isa_pkg::CSR_PREFETCH_V_ROWS)),
    .store_v_rows_i(csr(dllm_isa_pkg::CSR_STORE_V_ROWS)), .memory_bytes_i,
    .plain_i(csr(dllm_isa_pkg::CSR_FORMAT_ACTIVATION) == 32'd7), .done_o(dma_done), .trap_o(dma_trap),
    .read_o(dma_read), .read_row_o(dma_read_row), .read_data_i(row), .write_o(dma_write),
    .write_row_o(dma_write_row), .write_data_o(dma_data), .load_o(load), .load_row_o(load_row),
    .load_second_o(load_second), .load_codes_o(load_codes), .load_scales_o(load_scales), .ar_valid_o, .ar_ready_i,
    .ar_address_o, .ar_length_o, .r_valid_i, .r_ready_o, .r_data_i, .r_last_i, .aw_valid_o, .aw_ready_i,
    .aw_address_o, .aw_length_o, .w_valid_o, .w_ready_i, .w_data_o, .w_strobe_o, .w_last_o, .b_valid_i, .b_ready_o
  );

  assign unit_done = to_dma ? dma_done : matrix_done;
  assign unit_trap = to_dma ? dma_trap : matrix_trap;
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

  generate
    if ((VLEN & (VLEN - 1)) != 0 || (MLEN & (MLEN - 1)) != 0 || (BLEN & (BLEN - 1)) != 0 ||
        (HLEN & (HLEN - 1)) != 0 || VLEN < MLEN || MLEN < HLEN) begin : g_check
      $fatal(1, "VLEN, MLEN, HLEN and BLEN must be powers of two, VLEN at least MLEN, MLEN at least HLEN");
    end
  endgenerate
  logic unused_bits;
  assign unused_bits = ^csr_o;
endmodule
