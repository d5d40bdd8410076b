// The vector unit: all instructions that compute on rows of vector SRAM (vector_class.sv), one at a time. The operands
// are held from the first cycle, in which begin_i is set, to the last, in which done_o is set.
`include "assert.svh"
`include "fault.svh"
module vector_unit #(
  parameter int VLEN = 16,
  parameter int HLEN = 4,
  parameter int ADD_STAGES = 2,
  parameter int MUL_STAGES = 1,
  parameter int EXP_STAGES = 1,
  parameter int RECI_STAGES = 2,
  parameter int MAX_STAGES = 4,
  parameter int SUM_STAGES = 8,
  parameter int SCAN_STAGES = 9,
  parameter int DRAWS = 0,
  parameter int DRAW_STAGES = 36,
  parameter int ROUTER_TOP = 8,
  parameter int ROUTER_EXPERTS = 128,
  localparam int Row = 16 * VLEN,
  localparam int Lane = $clog2(VLEN),
  localparam int LevelBits = $clog2(Lane + 1),
  localparam int ExpertBits = $clog2(ROUTER_EXPERTS + 1),
  localparam int TopBits = $clog2(ROUTER_TOP + 1),
  localparam int Csrs = 27
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 begin_i,
  input  logic [31:0]          word_i,
  input  logic [Row-1:0]       row_a_i,
  input  logic [Row-1:0]       row_b_i,
  input  logic [31:0]          mask_i,       // V_MASK: sections of HLEN lanes
  input  logic [15:0]          scalar_i,     // f[rs2]
  input  logic [31:0]          distance_i,   // gp[rs2]: of a shift; the first token of a draw
  input  logic [31:0]          position_i,   // gp[rs5]
  input  logic [31:0]          k_i,          // gp[rs3]
  input  logic [31:0]          elements_i,
  input  logic [TopBits-1:0]   router_top_i,
  input  logic [15:0]          running_max_i,
  input  logic [31:0]          running_sum_i,
  input  logic [63:0]          running_key_i,
  input  logic [32*Csrs-1:0]   csr_i,
  output logic                 known_o,      // word_i is an instruction of this unit
  output logic                 done_o,
  output logic                 writes_row_o, // with done_o
  output logic [Row-1:0]       row_o,
  output logic                 found_o,      // results of reductions
  output logic                 greater_o,
  output logic [15:0]          max_o,
  output logic [Lane-1:0]      max_lane_o,
  output logic [31:0]          sum_o,
  output logic                 drawn_o,      // a lane's key is larger than the running one
  output logic [Lane-1:0]      drawn_lane_o,
  output logic [15:0]          drawn_logit_o,
  output logic [63:0]          drawn_key_o,
  output logic [ExpertBits-1:0] router_next_o,   // expert whose row is read now, for the next cycle
  output logic                 router_write_o,
  output logic [TopBits-1:0]   router_index_o,
  output logic [15:0]          router_weight_o,
  output logic [ExpertBits-1:0] router_expert_o
);
  logic is_add, is_multiply, is_exp, is_root, is_extreme, is_max, is_max_index, is_max_seg, is_sum, is_sum_seg, is_scan,
        is_shift, is_hadamard, is_top, is_router, is_draw, two_rows, writes_row;
  /* verilator lint_off PINCONNECTEMPTY */
  vector_class i_class (
    .word_i, .add_o(is_add), .multiply_o(is_multiply), .exp_o(is_exp), .root_o(is_root), .extreme_o(is_extreme),
    .max_o(is_max), .max_index_o(is_max_index), .max_seg_o(is_max_seg), .sum_o(is_sum), .sum_seg_o(is_sum_seg),
    .scan_o(is_scan), .shift_o(is_shift), .hadamard_o(is_hadamard), .top_o(is_top), .router_o(is_router),
    .draw_o(is_draw), .known_o, .row_rs1_o(), .row_rs2_o(two_rows), .row_rd_o(writes_row)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  // Only instructions with a mask have a field there; the others use its bits for registers.
  logic masked;
  logic [VLEN-1:0] active, candidates;
  assign masked = word_i[21:18] != 4'd0 && !is_max_index && !is_draw && !is_top && !is_router;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_active
      if (i / HLEN < 32) begin : g_section
        assign active[i] = !masked || mask_i[i/HLEN];
      end else begin : g_beyond
        assign active[i] = !masked;
      end
    end
  endgenerate

  // log2 of segment_length, a power of two up to VLEN.
  logic [LevelBits-1:0] level;
  always_comb begin
    level = '0;
    for (int i = 1; i <= Lane; i++) if (csr_i[32*dllm_isa_pkg::CSR_SEGMENT_LENGTH+i]) level = LevelBits'(i);
  end

  // Lane by lane.
  logic subtract, reversed, root, smallest;
  logic add_valid, multiply_valid, exp_valid, root_valid, extreme_valid;
  logic [Row-1:0] b, add_row, multiply_row, exp_row, root_row, extreme_row;
  assign b = two_rows ? row_b_i : {VLEN{scalar_i}};
  assign subtract = word_i[5:0] == dllm_isa_pkg::OP_V_SUB_VV || word_i[5:0] == dllm_isa_pkg::OP_V_SUB_VF;
  assign reversed = word_i[5:0] == dllm_isa_pkg::OP_V_SUB_VF && word_i[25:22] == 4'd1;
  assign root = word_i[25:22] == 4'd1;
  assign smallest = word_i[5:0] == dllm_isa_pkg::OP_V_MIN_VF;
  vector_lanes #(.VLEN(VLEN), .ADD_STAGES(ADD_STAGES), .EXP_STAGES(EXP_STAGES)) i_lanes (
    .clk_i, .rst_ni, .add_valid_i(begin_i && is_add), .exp_valid_i(begin_i && is_exp), .negate_a_i(reversed),
    .negate_b_i(subtract && !reversed), .a_i(row_a_i), .b_i(b), .active_i(active),
    .add_valid_o(add_valid), .exp_valid_o(exp_valid), .add_o(add_row), .exp_o(exp_row)
  );
  more_lanes #(.VLEN(VLEN), .MUL_STAGES(MUL_STAGES), .RECI_STAGES(RECI_STAGES), .MAX_STAGES(MAX_STAGES)) i_more (
    .clk_i, .rst_ni, .multiply_valid_i(begin_i && is_multiply), .root_valid_i(begin_i && is_root),
    .extreme_valid_i(begin_i && is_extreme), .square_root_i(root), .smallest_i(smallest), .a_i(row_a_i), .b_i(b),
    .active_i(active), .multiply_valid_o(multiply_valid), .root_valid_o(root_valid), .extreme_valid_o(extreme_valid),
    .multiply_o(multiply_row), .root_o(root_row), .extreme_o(extreme_row)
  );

  // Reductions of a row, and of its sections.
  logic max_valid, sum_valid;
  logic [Row-1:0] max_row, sum_row;
  max_index #(.VLEN(VLEN), .STAGES(MAX_STAGES)) i_max (
    .clk_i, .rst_ni, .valid_i(begin_i && (is_max || is_max_index || is_max_seg)), .row_i(row_a_i), .active_i(active),
    .running_i(running_max_i), .level_i(level), .valid_o(max_valid), .found_o, .greater_o, .value_o(max_o),
    .lane_o(max_lane_o), .sections_o(max_row)
  );
  row_sum #(.VLEN(VLEN), .STAGES(SUM_STAGES)) i_sum (
    .clk_i, .rst_ni, .valid_i(begin_i && (is_sum || is_sum_seg)), .row_i(row_a_i), .active_i(active),
    .running_i(running_sum_i), .level_i(level), .valid_o(sum_valid), .sum_o, .sections_o(sum_row)
  );

  // Rows that change their lanes' order or mix them.
  logic scan_valid, hadamard_done;
  logic [Row-1:0] scanned_row, shifted_row, hadamard_out;
  row_scan #(.VLEN(VLEN), .STAGES(SCAN_STAGES)) i_scan (
    .clk_i, .rst_ni, .valid_i(begin_i && is_scan), .row_i(row_a_i), .active_i(active), .valid_o(scan_valid),
    .row_o(scanned_row)
  );
  row_shift #(.VLEN(VLEN)) i_shift (
    .row_i(row_a_i), .distance_i, .mode_i(word_i[23:22]), .level_i(level), .row_o(shifted_row)
  );
  hadamard_row #(.VLEN(VLEN)) i_hadamard (
    .clk_i, .rst_ni, .start_i(begin_i && is_hadamard), .level_i(level), .row_i(row_a_i), .done_o(hadamard_done),
    .row_o(hadamard_out)
  );

  // Selections.
  logic top_done, router_done, some;
  logic [VLEN-1:0] top;
  assign some = elements_i != 32'd0;
  top_mask #(.LANES(VLEN)) i_top (
    .clk_i, .rst_ni, .start_i(begin_i && is_top && some), .length_i(elements_i[Lane:0]), .k_i, .row_i(row_a_i),
    .candidates_i(candidates), .done_o(top_done), .mask_o(top)
  );
  router #(.VLEN(VLEN), .TOP(ROUTER_TOP), .STEP(MAX_STAGES), .EXPERTS(ROUTER_EXPERTS)) i_router (
    .clk_i, .rst_ni, .start_i(begin_i && is_router), .experts_i(ExpertBits'(elements_i)), .top_i(router_top_i),
    .row_i(row_a_i), .next_o(router_next_o), .write_o(router_write_o), .index_o(router_index_o),
    .weight_o(router_weight_o), .expert_o(router_expert_o), .done_o(router_done)
  );

  logic draw_done;
  generate
    if (DRAWS != 0) begin : g_draw
      draw_unit #(.VLEN(VLEN), .STAGES(DRAW_STAGES)) i_draw (
        .clk_i, .rst_ni, .start_i(begin_i && is_draw), .row_i(row_a_i), .first_i(distance_i), .position_i,
        .step_i(csr_i[32*dllm_isa_pkg::CSR_DRAW_STEP+:32]), .stream_i(csr_i[32*dllm_isa_pkg::CSR_DRAW_STREAM+:32]),
        .seed_i({csr_i[32*dllm_isa_pkg::CSR_DRAW_SEED_HIGH+:32], csr_i[32*dllm_isa_pkg::CSR_DRAW_SEED_LOW+:32]}),
        .temperature_i({csr_i[32*dllm_isa_pkg::CSR_DRAW_TEMPERATURE_HIGH+:32],
                        csr_i[32*dllm_isa_pkg::CSR_DRAW_TEMPERATURE_LOW+:32]}),
        .precision_i(csr_i[32*dllm_isa_pkg::CSR_DRAW_PRECISION+:2]),
        .except_i(csr_i[32*dllm_isa_pkg::CSR_DRAW_EXCEPT+:32]), .tokens_i(csr_i[32*dllm_isa_pkg::CSR_DRAW_TOKENS+:32]),
        .running_i(running_key_i), .done_o(draw_done), .greater_o(drawn_o), .lane_o(drawn_lane_o),
        .logit_o(drawn_logit_o), .key_o(drawn_key_o)
      );
    end else begin : g_no_draw
      assign draw_done = begin_i && is_draw;
      assign drawn_o = 1'b0;
      assign drawn_lane_o = '0;
      assign drawn_logit_o = 16'b0;
      assign drawn_key_o = 64'b0;
      logic unused_inputs;
      assign unused_inputs = &{position_i, running_key_i};
    end
  endgenerate
  logic unused_csr;
  assign unused_csr = &csr_i;

  // The result. Lanes that are off keep the first source; units before this point do that themselves, sections here.
  logic [Row-1:0] top_row, sections;
  assign sections = is_max_seg ? max_row : sum_row;
  logic [Row-1:0] section_row;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      assign candidates[i] = row_b_i[16*i+:15] != 15'd0;
      assign top_row[16*i+:16] = top[i] ? 16'h3f80 : 16'h0000;
      assign section_row[16*i+:16] = active[i] || `FAULT(18) ? sections[16*i+:16] : row_a_i[16*i+:16];
    end
  endgenerate
  always_comb begin
    done_o = 1'b1;
    row_o = add_row;
    if (is_add) done_o = add_valid;
    if (is_multiply) {done_o, row_o} = {multiply_valid, multiply_row};
    if (is_exp) {done_o, row_o} = {exp_valid, exp_row};
    if (is_root) {done_o, row_o} = {root_valid, root_row};
    if (is_extreme) {done_o, row_o} = {extreme_valid, extreme_row};
    if (is_max || is_max_index) done_o = max_valid;
    if (is_max_seg) {done_o, row_o} = {max_valid, section_row};
    if (is_sum) done_o = sum_valid;
    if (is_sum_seg) {done_o, row_o} = {sum_valid, section_row};
    if (is_scan) {done_o, row_o} = {scan_valid, scanned_row};
    if (is_shift) row_o = shifted_row;
    if (is_hadamard) {done_o, row_o} = {hadamard_done, hadamard_out};
    if (is_top) {done_o, row_o} = {top_done || !some, top_row};
    if (is_router) done_o = router_done;
    if (is_draw) done_o = draw_done;
  end
  assign writes_row_o = writes_row && (!is_top || some);

  `DLLM_ASSERT(a_one_unit_ends, $onehot0({add_valid, multiply_valid, exp_valid, root_valid, extreme_valid, max_valid,
                                          sum_valid, scan_valid, hadamard_done, top_done, router_done, draw_done}))
  `DLLM_ASSERT(a_nothing_ends_for_another, !(add_valid && !is_add) && !(sum_valid && !is_sum && !is_sum_seg) &&
                                           !(router_done && !is_router) && !(scan_valid && !is_scan))
  `DLLM_ASSERT(a_one_class, $onehot0({is_add, is_multiply, is_exp, is_root, is_extreme, is_max, is_max_index,
                                      is_max_seg, is_sum, is_sum_seg, is_scan, is_shift, is_hadamard, is_top, is_router,
                                      is_draw}))
endmodule
