// Whether an instruction traps, and why: the functional machine's checks in its order. Accesses are checked in the
// order of the instruction table, and the first that fails gives the reason; within one, alignment comes before the
// bounds. An access of no elements has no bounds. Nothing wraps: sums have the bits that they need.
`include "fault.svh"
module decode_trap #(
  parameter bit EXTERNAL = 0,
  parameter logic [159:0] FORMATS = '0,
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int VRAM_ROWS = 256,
  parameter int FP_WORDS = 256,
  parameter int INT_WORDS = 256,
  parameter int ROUTER_TOP = 8,
  parameter int DRAWS = 0,
  localparam int Csrs = 27
) (
  input  logic [31:0] word_i,
  input  logic        known_i,
  input  logic        load_or_store_int_i,
  input  logic        load_or_store_fp_i,
  input  logic        map_i,
  input  logic        select_i,
  input  logic        prefetch_i,
  input  logic        top_mask_i,
  input  logic        router_i,
  input  logic        draw_i,
  input  logic        reads_row_i,     // rs1
  input  logic        two_rows_i,      // and rs2
  input  logic        writes_row_i,    // rd
  input  logic [31:0] d_i,             // registers rd, rs1, rs2, rs3
  input  logic [31:0] a_i,
  input  logic [31:0] b_i,
  input  logic [31:0] c_i,
  input  logic [32:0] word_address_i,  // rs1 + imm
  input  logic [31:0] elements_i,
  input  logic [31:0] router_top_i,
  input  logic        conflict_i,      // of V_SELECT_INT's orders
  input  logic [32*Csrs-1:0] csr_i,
  output logic [2:0]  trap_o
);
`include "traps.svh"
  localparam int Lane = $clog2(VLEN);

  // Rows of an access of vector SRAM: one, or those of its elements.
  logic several;
  logic [31:0] rows;
  assign several = top_mask_i || router_i || select_i;
  assign rows = several ? (elements_i >> Lane) + {31'b0, elements_i[Lane-1:0] != '0} : 32'd1;

  function automatic logic bad_rows(input logic [31:0] address, input logic [31:0] count);
    bad_rows = address[Lane-1:0] != '0 ||
               (count != 32'd0 && {1'b0, address >> Lane} + {1'b0, count} > 33'(VRAM_ROWS));
  endfunction
  function automatic logic bad_words(input logic [32:0] address, input logic [31:0] count, input int words);
    bad_words = count != 32'd0 && {1'b0, address} + {2'b0, count} > 34'(words);
  endfunction

  logic length_bad, early_word_bad, row_bad, late_word_bad, limit_bad, order_bad, value_bad;
  assign length_bad = (map_i && elements_i > VLEN) || (router_i && router_top_i > elements_i);
  assign early_word_bad =
    (load_or_store_int_i && bad_words(word_address_i, 32'd1, INT_WORDS)) ||
    (load_or_store_fp_i && bad_words(word_address_i, 32'd1, FP_WORDS)) ||
    (map_i && bad_words(word_address_i, elements_i, FP_WORDS)) ||
    (select_i && (bad_words({1'b0, a_i}, elements_i, INT_WORDS) || bad_words({1'b0, b_i}, elements_i, INT_WORDS)));
  assign row_bad = (reads_row_i && bad_rows(a_i, rows)) || (two_rows_i && bad_rows(b_i, rows)) ||
                   ((writes_row_i || map_i) && bad_rows(d_i, map_i ? 32'd1 : rows)) ||
                   (select_i && bad_rows(c_i, rows)) ||
                   (prefetch_i && bad_rows(d_i, csr_i[32*dllm_isa_pkg::CSR_PREFETCH_V_ROWS+:32]));
  assign late_word_bad =
    (select_i && bad_words({1'b0, d_i}, elements_i, INT_WORDS)) ||
    (router_i && (bad_words({1'b0, d_i}, router_top_i, FP_WORDS) || bad_words({1'b0, b_i}, router_top_i, INT_WORDS)));
  // What this hardware lacks and the machine has: V_TOPK_MASK beyond a row, longer lists of V_TOPK, two sources of
  // V_SELECT_INT that need opposite orders.
  assign limit_bad = (top_mask_i && elements_i > VLEN) || (router_i && router_top_i > ROUTER_TOP);
  assign order_bad = select_i && conflict_i && elements_i != 32'd0;

  // Control registers, and the temperature of draws: finite and above 0.
  logic is_csr, csr_bad, unused_known;
  logic [63:0] temperature;
  assign is_csr = word_i[5:0] == dllm_isa_pkg::OP_C_SET_CSR;
  control_check #(
    .EXTERNAL(EXTERNAL), .FORMATS(FORMATS), .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN)
  ) i_csr (
    .csr_i(word_i[31:14]), .value_i(d_i), .known_o(unused_known), .bad_o(csr_bad)
  );
  assign temperature = {csr_i[32*dllm_isa_pkg::CSR_DRAW_TEMPERATURE_HIGH+:32],
                        csr_i[32*dllm_isa_pkg::CSR_DRAW_TEMPERATURE_LOW+:32]};
  assign value_bad = (is_csr && csr_bad) ||
                     (draw_i && (temperature[63] || temperature == 64'd0 || temperature[62:52] == 11'h7ff));

  always_comb begin
    trap_o = TrapNone;
    if (!known_i || (draw_i && DRAWS == 0)) trap_o = TrapOpcode;
    else if (length_bad) trap_o = TrapLength;
    else if (early_word_bad) trap_o = TrapWord;
    else if (row_bad) trap_o = TrapRow;
    else if (late_word_bad) trap_o = TrapWord;
    else if (value_bad) trap_o = TrapValue;
    else if (limit_bad) trap_o = TrapLength;
    else if (order_bad) trap_o = TrapOrder;
  end

  logic unused_bits;
  assign unused_bits = &{csr_i, word_i[13:6]};
endmodule
