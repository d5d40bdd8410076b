// Combinational decoder: the class of an instruction, the general registers that it reads, its addresses and lengths,
// and whether it traps (decode_trap.sv).
`include "fault.svh"
module decode #(
  parameter bit EXTERNAL = 0,
  parameter logic [159:0] FORMATS = '0,
  parameter int VLEN = 16,
  parameter int MLEN = VLEN,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int VRAM_ROWS = 256,
  parameter int FP_WORDS = 256,
  parameter int INT_WORDS = 256,
  parameter int ROUTER_TOP = 8,
  parameter int DRAWS = 0,
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int TopBits = $clog2(ROUTER_TOP + 1),
  localparam int Csrs = 27
) (
  input  logic [31:0]  word_i,
  input  logic [511:0] gp_i,              // general registers, and what is written to one in this cycle
  input  logic         write_i,
  input  logic [3:0]   write_register_i,
  input  logic [31:0]  write_data_i,
  input  logic [32*Csrs-1:0] csr_i,
  output logic         loop_start_o,
  output logic         loop_end_o,
  output logic         branch_o,
  output logic         break_o,
  output logic         external_o,        // executes outside; that unit checks it
  output logic         writes_gp_o,
  output logic         two_rows_o,        // are read
  output logic         select_o,
  output logic [31:0]  d_o,               // registers rd, rs1, rs2, rs3
  output logic [31:0]  a_o,
  output logic [31:0]  b_o,
  output logic [31:0]  c_o,
  output logic [31:0]  t_o,               // the register in the field of tags: a position, of draws
  output logic [RowBits-1:0] row_o,       // of vector SRAM, the first that is read
  output logic [31:0]  word_address_o,    // of scalar SRAM
  output logic [31:0]  elements_o,
  output logic [TopBits-1:0] router_top_o, // selected experts of V_TOPK
  output logic         descending_o,      // V_SELECT_INT goes from the last element to the first
  output logic [2:0]   trap_o
);
  localparam int Lane = $clog2(VLEN);
  localparam int IntBits = $clog2(INT_WORDS);

  logic c_int, c_load_int, c_store_int, c_load_fp, c_store_fp, c_map, c_prefetch, c_known;
  logic v_max_index, v_draw, v_top, v_router, v_known, reads_row, writes_row;
  /* verilator lint_off PINCONNECTEMPTY */
  instruction_class #(.EXTERNAL(EXTERNAL)) i_class (
    .word_i, .loop_start_o, .loop_end_o, .int_o(c_int), .load_int_o(c_load_int), .store_int_o(c_store_int),
    .scalar_o(), .load_fp_o(c_load_fp), .store_fp_o(c_store_fp), .map_o(c_map), .select_o, .prefetch_o(c_prefetch),
    .setter_o(), .branch_o, .break_o, .external_o, .known_o(c_known)
  );
  vector_class i_vector (
    .word_i, .add_o(), .multiply_o(), .exp_o(), .root_o(), .extreme_o(), .max_o(), .max_index_o(v_max_index),
    .max_seg_o(), .sum_o(), .sum_seg_o(), .scan_o(), .shift_o(), .hadamard_o(), .top_o(v_top), .router_o(v_router),
    .draw_o(v_draw), .known_o(v_known), .row_rs1_o(reads_row), .row_rs2_o(two_rows_o), .row_rd_o(writes_row)
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign writes_gp_o = c_int || c_load_int || v_max_index || v_draw;

  function automatic logic [31:0] register(input logic [3:0] number);
    register = write_i && write_register_i == number ? write_data_i : gp_i[32*number+:32];
  endfunction
  logic [31:0] length;  // register funct
  assign d_o = register(word_i[9:6]);
  assign a_o = register(word_i[13:10]);
  assign b_o = register(word_i[17:14]);
  assign c_o = register(word_i[21:18]);
  assign t_o = register(word_i[29:26]);
  assign length = register(word_i[25:22]);

  // Addresses and lengths. The sum of a register and an immediate has 33 bits: the upper one is out of range.
  logic long_form;
  logic [32:0] word_address;
  assign long_form = word_i[31];  // S_MAP_V_FP with a length
  assign word_address = {1'b0, a_o} + (!c_map ? {15'b0, word_i[31:14]}
                                       : long_form ? {20'b0, word_i[30:18]} : {16'b0, word_i[30:14]});
  assign word_address_o = word_address[31:0];

  // V_TOPK's policies: 32 experts and 4 of them, 128 and 8, or what the control registers say.
  logic [31:0] experts, router_top;
  always_comb begin
    case (word_i[21:18])
      4'd0: {experts, router_top} = {32'd32, 32'd4};
      4'd1: {experts, router_top} = {32'd128, 32'd8};
      default: {experts, router_top} = {csr_i[32*dllm_isa_pkg::CSR_ROUTER_EXPERTS+:32],
                                          csr_i[32*dllm_isa_pkg::CSR_ROUTER_TOP+:32]};
    endcase
  end
  assign router_top_o = TopBits'(router_top);
  assign elements_o = c_map ? (long_form ? b_o : VLEN) : v_router ? experts : length;

  logic descends, conflict;
  logic [RowBits-1:0] first_row, last_row;
  assign last_row = RowBits'((elements_o - 32'd1) >> Lane);
  assign first_row = select_o ? c_o[Lane+:RowBits] : a_o[Lane+:RowBits];
  always_comb begin
    row_o = select_o && descends ? first_row + last_row : first_row;
    // The first row of a product's operand.
    if (external_o && word_i[5:0] != dllm_isa_pkg::OP_M_TMM) row_o = b_o[Lane+:RowBits];
  end
  select_order #(.ADDRESS(IntBits)) i_order (
    .length_i(IntBits'(elements_o)), .chosen_i(IntBits'(a_o)), .other_i(IntBits'(b_o)), .target_i(IntBits'(d_o)),
    .descending_o(descends), .conflict_o(conflict)
  );
  assign descending_o = descends;

  decode_trap #(
    .EXTERNAL(EXTERNAL), .FORMATS(FORMATS), .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS),
    .FP_WORDS(FP_WORDS), .INT_WORDS(INT_WORDS), .ROUTER_TOP(ROUTER_TOP), .DRAWS(DRAWS)
  ) i_trap (
    .word_i, .known_i(c_known || v_known), .load_or_store_int_i(c_load_int || c_store_int),
    .load_or_store_fp_i(c_load_fp || c_store_fp), .map_i(c_map), .select_i(select_o), .prefetch_i(c_prefetch),
    .top_mask_i(v_top), .router_i(v_router), .draw_i(v_draw), .reads_row_i(reads_row), .two_rows_i(two_rows_o),
    .writes_row_i(writes_row), .d_i(d_o), .a_i(a_o), .b_i(b_o), .c_i(c_o), .word_address_i(word_address),
    .elements_i(elements_o), .router_top_i(router_top), .conflict_i(conflict), .csr_i, .trap_o
  );
endmodule
