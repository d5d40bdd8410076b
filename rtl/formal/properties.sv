// What Yosys proves about small units (scripts/rtl_formal): each module is one theorem, for all inputs.

// shift_sticky: the shifted number rounded to odd, against a definition that looks at each lost bit.
module prove_shift_sticky (
  input logic signed [11:0] value_i,
  input logic [9:0]         distance_i
);
  logic signed [11:0] shifted, floor;
  logic lost;
  shift_sticky #(.WIDTH(12)) i_dut (.value_i, .distance_i, .shifted_o(shifted));
  always_comb begin
    lost = 1'b0;
    for (int i = 0; i < 12; i++) if (i < distance_i && value_i[i]) lost = 1'b1;
    floor = value_i >>> distance_i;
    a_floor_above_the_lowest_bit: assert (shifted[11:1] == floor[11:1]);
    a_lowest_bit_keeps_what_is_lost: assert (shifted[0] == (floor[0] || lost));
  end
endmodule

// order_key: a total order of all bits in which only the two zeros are equal.
module prove_order_key (
  input logic [15:0] a_i,
  input logic [15:0] b_i
);
  logic [15:0] key_a, key_b;
  order_key i_a (.value_i(a_i), .key_o(key_a));
  order_key i_b (.value_i(b_i), .key_o(key_b));
  always_comb begin
    a_equal_keys_are_equal_numbers: assert ((key_a == key_b) == (a_i == b_i || (a_i[14:0] == '0 && b_i[14:0] == '0)));
    if (!a_i[15] && !b_i[15]) a_positive_order: assert ((key_a > key_b) == (a_i > b_i));
    if (a_i[15] && b_i[15] && a_i[14:0] != '0 && b_i[14:0] != '0)
      a_negative_order: assert ((key_a > key_b) == (a_i < b_i));
    if (a_i[15] && a_i[14:0] != '0 && !b_i[15]) a_signs: assert (key_a < key_b);
  end
endmodule

// Every word belongs to at most one class, with and without the matrix unit and the DMA engine.
module prove_classes #(
  parameter bit EXTERNAL = 0
) (
  input logic [31:0] word_i
);
  logic [14:0] scalar;
  logic [15:0] vector;
  logic known, vector_known, row_rs1, row_rs2, row_rd;
  instruction_class #(.EXTERNAL(EXTERNAL)) i_scalar (
    .word_i, .loop_start_o(scalar[0]), .loop_end_o(scalar[1]), .int_o(scalar[2]), .load_int_o(scalar[3]),
    .store_int_o(scalar[4]), .scalar_o(scalar[5]), .load_fp_o(scalar[6]), .store_fp_o(scalar[7]), .map_o(scalar[8]),
    .select_o(scalar[9]), .prefetch_o(scalar[10]), .setter_o(scalar[11]), .branch_o(scalar[12]), .break_o(scalar[13]),
    .external_o(scalar[14]), .known_o(known)
  );
  vector_class i_vector (
    .word_i, .add_o(vector[0]), .multiply_o(vector[1]), .exp_o(vector[2]), .root_o(vector[3]), .extreme_o(vector[4]),
    .max_o(vector[5]), .max_index_o(vector[6]), .max_seg_o(vector[7]), .sum_o(vector[8]), .sum_seg_o(vector[9]),
    .scan_o(vector[10]), .shift_o(vector[11]), .hadamard_o(vector[12]), .top_o(vector[13]), .router_o(vector[14]),
    .draw_o(vector[15]), .known_o(vector_known), .row_rs1_o(row_rs1), .row_rs2_o(row_rs2), .row_rd_o(row_rd)
  );
  logic [30:0] all;
  assign all = {vector, scalar};
  always_comb begin
    a_one_class: assert ((all & (all - 1'b1)) == '0);
    a_known_is_any: assert ((known || vector_known) == (all != '0));
    if (row_rs2) a_second_source_needs_a_first: assert (row_rs1);
    if (word_i[5:0] == 6'd0) a_zero_is_no_instruction: assert (all == '0);
  end
endmodule

module prove_core_classes (
  input logic [31:0] word_i
);
  prove_classes #(.EXTERNAL(1'b1)) i_classes (.word_i);
endmodule

// The issue stage's times: a top-k mask takes a cycle per lane, or as many as TIME bits hold, and says that it was cut.
module prove_issue_times (
  input logic [25:0] operands_i,
  input logic [31:0] lanes_i
);
  localparam logic [31:0] Longest = 32'd2047;
  logic [11:0] latency, occupies;
  logic [31:0] wanted;
  logic long;
  /* verilator lint_off PINCONNECTEMPTY */
  issue_decode i_dut (
    .word_i({operands_i, dllm_isa_pkg::OP_V_TOPK_MASK}), .d_i('0), .a_i('0), .b_i('0), .c_i('0), .l_i(lanes_i),
    .csr_i('0), .unit_o(), .int_o(), .pipe_o(), .latency_o(latency), .occupies_o(occupies), .rows_o(), .reads_o(),
    .again_o(), .writes_o(), .f_reads_o(), .f_writes_o(), .accumulates_o(), .index_o(), .ends_loop_o(), .branch_o(),
    .gp_reads_o(), .gp_writes_o(), .sums_o(), .flush_o(), .fence_o(), .long_o(long)
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign wanted = lanes_i == 32'd0 ? 32'd1 : lanes_i;
  always_comb begin
    a_no_time_is_lost: assert (32'(latency) == (wanted > Longest ? Longest : wanted) && occupies == latency);
    a_cut_times_are_told: assert (long == (wanted > Longest));
  end
endmodule

// The loop stack of the sequencer, for any program and any registers: it holds at most DEPTH loops, no instruction is
// decoded twice, and a loop instruction that traps writes no counter and leaves the stack.
module prove_loop_stack (
  input logic        clk_i,
  input logic        rst_ni,
  input logic        stop_i,
  input logic [31:0] first_i,
  input logic [31:0] second_i,
  input logic [3:0]  first_end_i,
  input logic [3:0]  second_end_i,
  input logic        writes_gp_i,
  input logic        stops_i,
  input logic        ready_i,
  input logic        hold_loop_i,
  input logic [31:0] counter_first_i,
  input logic [31:0] counter_second_i
);
  localparam int Depth = 2;
  logic valid, finished, write, trap;
  logic [3:0] fetch, pc, register;
  logic [31:0] data;
  logic start, first_start, first_end;
  logic started_q = 1'b0;
  assign start = rst_ni && !started_q;
  always_ff @(posedge clk_i) started_q <= rst_ni;
  assign first_start = first_i[5:0] == dllm_isa_pkg::OP_C_LOOP_START;
  assign first_end = first_i[5:0] == dllm_isa_pkg::OP_C_LOOP_END;
  sequencer #(.ADDRESS(4), .DEPTH(Depth)) i_dut (
    .clk_i, .rst_ni, .start_i(start), .stop_i, .length_i(5'd16), .fetch_o(fetch), .first_i, .second_i,
    .first_is_start_i(first_start), .first_is_end_i(first_end),
    .first_is_branch_i(first_i[5:0] == dllm_isa_pkg::OP_C_BNZ), .first_writes_gp_i(writes_gp_i),
    .first_stops_i(stops_i), .first_end_i, .second_end_i,
    .second_is_start_i(second_i[5:0] == dllm_isa_pkg::OP_C_LOOP_START),
    .second_is_end_i(second_i[5:0] == dllm_isa_pkg::OP_C_LOOP_END), .take_i(valid && ready_i && !stop_i), .hold_loop_i,
    .counter_first_i, .counter_second_i, .valid_o(valid), .end_o(finished), .pc_o(pc), .write_o(write),
    .write_register_o(register), .write_data_o(data), .trap_o(trap)
  );
  // The first step is a reset. The assertions are those of sequencer.sv.
  logic was_reset_q = 1'b0;
  always_ff @(posedge clk_i) was_reset_q <= 1'b1;
  always_comb a_reset_first: assume (was_reset_q || !rst_ni);
endmodule

// Bursts of a transfer, for any descriptor whose bytes end below 2^63: what is valid holds until it is taken, no burst
// is empty, leaves its page, or its run of bytes; a run has rows that are left.
module prove_bursts (
  input logic        clk_i,
  input logic        rst_ni,
  input logic        start_i,
  input logic        step_i,
  input logic [31:0] rows_i,
  input logic        scaled_i,
  input logic        scales_first_i,
  input logic [63:0] elements_i,
  input logic [63:0] scales_i,
  input logic [63:0] element_stride_i,
  input logic [63:0] scale_stride_i,
  input logic [5:0]  element_bytes_i,
  input logic [5:0]  scale_bytes_i
);
  logic valid, scales;
  logic [63:0] run, address;
  logic [8:0] bytes;
  logic [7:0] beats;
  dma_walker #(.BEAT(4), .GROUP(4), .ROW_BITS(6)) i_dut (
    .clk_i, .rst_ni, .start_i(start_i && !valid), .step_i(step_i && valid), .rows_i, .scaled_i, .scales_first_i,
    .elements_i, .scales_i, .element_stride_i, .scale_stride_i, .element_bytes_i, .scale_bytes_i, .valid_o(valid),
    .scales_o(scales), .run_o(run), .bytes_o(bytes), .address_o(address), .beats_o(beats)
  );
  logic was_reset_q = 1'b0;
  logic waits_q;
  logic [72:0] burst, burst_q;
  logic [173:0] shape, shape_q;
  assign burst = {address, beats, scales};
  assign shape = {rows_i, scaled_i, scales_first_i, element_bytes_i, scale_bytes_i, element_stride_i, scale_stride_i};
  always_ff @(posedge clk_i) begin
    was_reset_q <= 1'b1;
    waits_q <= rst_ni && valid && !step_i;
    burst_q <= burst;
    shape_q <= shape;
  end
  always_comb begin
    a_reset_first: assume (was_reset_q || !rst_ni);
    a_descriptor_holds: assume (!valid || shape == shape_q || !was_reset_q);
    a_rows_have_bytes: assume (rows_i != '0 && element_bytes_i != '0 && (!scaled_i || scale_bytes_i != '0));
    a_below_2_63: assume (!run[63]);
    if (was_reset_q && rst_ni) a_waits_for_its_taker: assert (!waits_q || (valid && burst == burst_q));
    if (was_reset_q && rst_ni && valid) begin
      a_page: assert ({1'b0, address[11:2], 2'd0} + {3'd0, beats, 2'd0} < 13'd4096);
      a_begins_in_its_run: assert (address >= run && address < run + 64'(bytes));
      a_ends_in_its_run: assert ({address[63:2], 2'd0} + (64'(beats) << 2) < run + 64'(bytes));
      a_scales_only_if_there_are: assert (!scales || scaled_i);
    end
  end
endmodule
