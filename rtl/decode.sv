// Combinational decoder: the class of an instruction, the general registers that it reads, its addresses and lengths,
// and whether it traps.
module decode #(
  parameter bit EXTERNAL = 0,
  parameter int VLEN = 16,
  parameter int VRAM_ROWS = 256,
  parameter int FP_WORDS = 256,
  parameter int INT_WORDS = 256,
  localparam int RowBits = $clog2(VRAM_ROWS)
) (
  input  logic [31:0]  word_i,
  input  logic [511:0] gp_i,              // general registers, and what is written to one in this cycle
  input  logic         write_i,
  input  logic [3:0]   write_register_i,
  input  logic [31:0]  write_data_i,
  input  logic [31:0]  prefetch_rows_i,
  output logic         loop_start_o,
  output logic         loop_end_o,
  output logic         break_o,
  output logic         writes_gp_o,
  output logic         two_rows_o,        // are read
  output logic         select_o,
  output logic [31:0]  d_o,               // registers rd, rs1, rs2, rs3
  output logic [31:0]  a_o,
  output logic [31:0]  b_o,
  output logic [31:0]  c_o,
  output logic [RowBits-1:0] row_o,       // of vector SRAM, the first that is read
  output logic [31:0]  word_address_o,    // of scalar SRAM
  output logic [31:0]  elements_o,
  output logic         descending_o,      // V_SELECT_INT goes from the last element to the first
  output logic [2:0]   trap_o
);
`include "traps.svh"
  localparam int Lane = $clog2(VLEN);
  localparam int IntBits = $clog2(INT_WORDS);

  logic c_int, c_load_int, c_store_int, unused_scalar, c_load_fp, c_store_fp, c_map, c_add, c_exp, c_max, c_max_index,
        c_sum, c_top, c_prefetch, unused_setter, c_known;
  logic c_external;
  instruction_class #(.EXTERNAL(EXTERNAL)) i_class (
    .word_i, .loop_start_o, .loop_end_o, .int_o(c_int), .load_int_o(c_load_int), .store_int_o(c_store_int),
    .scalar_o(unused_scalar), .load_fp_o(c_load_fp), .store_fp_o(c_store_fp), .map_o(c_map), .add_o(c_add),
    .two_rows_o, .exp_o(c_exp), .max_o(c_max), .max_index_o(c_max_index), .sum_o(c_sum), .top_o(c_top), .select_o,
    .prefetch_o(c_prefetch), .setter_o(unused_setter), .break_o, .external_o(c_external),
    .known_o(c_known)
  );
  assign writes_gp_o = c_int || c_load_int || c_max_index;

  function automatic logic [31:0] register(input logic [3:0] number);
    register = write_i && write_register_i == number ? write_data_i : gp_i[32*number+:32];
  endfunction
  logic [31:0] length;  // register funct
  assign d_o = register(word_i[9:6]);
  assign a_o = register(word_i[13:10]);
  assign b_o = register(word_i[17:14]);
  assign c_o = register(word_i[21:18]);
  assign length = register(word_i[25:22]);

  // Addresses and lengths.
  logic long_form, reads_row;
  logic [31:0] row_address;
  assign long_form = word_i[31];  // S_MAP_V_FP with a length
  assign word_address_o = a_o + (!c_map ? {14'b0, word_i[31:14]}
                                 : long_form ? {19'b0, word_i[30:18]} : {15'b0, word_i[30:14]});
  assign elements_o = c_map ? (long_form ? b_o : VLEN) : length;
  assign reads_row = c_add || c_exp || c_max || c_max_index || c_sum || c_top || select_o;
  assign row_address = select_o ? c_o : a_o;
  // The first row of a matrix instruction's operand is read now, too; its unit checks the address.
  assign row_o = c_external && word_i[5:0] != dllm_isa_pkg::OP_M_TMM ? b_o[Lane+:RowBits]
                                                                         : row_address[Lane+:RowBits];

  // Traps.
  function automatic logic is_row(input logic [31:0] address);
    is_row = address[Lane-1:0] == '0 && address < VLEN * VRAM_ROWS;
  endfunction
  function automatic logic beyond(input logic [31:0] address, input logic [31:0] count, input int words);
    beyond = {1'b0, address} + {1'b0, count} > 33'(words);
  endfunction

  logic no_elements, row_bad, word_bad, length_bad, conflict;
  assign no_elements = (c_top || select_o) && elements_o == 32'd0;
  assign row_bad = ((reads_row && !is_row(row_address)) || (two_rows_o && !is_row(b_o)) ||
                    ((c_add || c_exp || c_top || c_map) && !is_row(d_o))) && !no_elements;
  assign word_bad = ((c_load_int || c_store_int) && word_address_o >= INT_WORDS) ||
                    ((c_load_fp || c_store_fp) && word_address_o >= FP_WORDS) ||
                    (c_map && beyond(word_address_o, elements_o, FP_WORDS)) ||
                    (select_o && !no_elements &&
                     (beyond(a_o, elements_o, INT_WORDS) || beyond(b_o, elements_o, INT_WORDS) ||
                      beyond(d_o, elements_o, INT_WORDS))) ||
                    (c_prefetch && (d_o[Lane-1:0] != '0 ||
                                    beyond(d_o, prefetch_rows_i << Lane, VLEN * VRAM_ROWS)));
  assign length_bad = (c_map || c_top || select_o) && elements_o > VLEN;
  select_order #(.ADDRESS(IntBits)) i_order (
    .length_i(IntBits'(elements_o)), .chosen_i(IntBits'(a_o)), .other_i(IntBits'(b_o)), .target_i(IntBits'(d_o)),
    .descending_o, .conflict_o(conflict)
  );
  always_comb begin
    trap_o = TrapNone;
    if (!c_known) trap_o = TrapOpcode;
    else if (length_bad) trap_o = TrapLength;
    else if (row_bad) trap_o = TrapRow;
    else if (word_bad) trap_o = TrapWord;
    else if (select_o && conflict && !no_elements) trap_o = TrapOrder;
  end
endmodule
