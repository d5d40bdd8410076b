// The engine: sequencer, vector unit, scalar units and the three SRAM domains. Instructions execute one at a time, each
// to completion, as under `--issue serial` in the cycle simulator. An instruction is decoded, its general registers are
// read and its SRAM reads are issued during the last cycle of the previous one.
`include "assert.svh"
`include "fault.svh"
module engine #(
  parameter int VLEN = 16,
  parameter int MLEN = VLEN,  // limits of control registers: contraction lanes and side of the matrix unit
  parameter int BLEN = 4,
  parameter int HLEN = 4,     // lanes of a section of V_MASK
  parameter int VRAM_ROWS = 256,
  parameter int FP_WORDS = 256,
  parameter int INT_WORDS = 256,
  parameter int PROGRAM_WORDS = 1024,
  parameter int LOOP_DEPTH = 16,
  parameter bit EXTERNAL = 0,       // there are a matrix unit and a DMA engine
  parameter logic [159:0] FORMATS = '0,  // theirs, which their control registers must name: from FORMAT_WEIGHT upwards
  parameter int ADD_STAGES = 2,
  parameter int MUL_STAGES = 1,
  parameter int EXP_STAGES = 1,
  parameter int RECI_STAGES = 2,
  parameter int MAX_STAGES = 4,
  parameter int SUM_STAGES = 8,
  parameter int SCAN_STAGES = 9,
  parameter int DRAWS = 0,  // a noise generator for V_RED_DRAW
  parameter int DRAW_STAGES = 36,
  parameter int ROUTER_TOP = VLEN < 8 ? 8 : VLEN,  // selected experts of V_TOPK, at most
  parameter int ROUTER_EXPERTS = VLEN < 128 ? 128 : VLEN,
  localparam int Row = 16 * VLEN,
  localparam int Lane = $clog2(VLEN),
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int FpBits = $clog2(FP_WORDS),
  localparam int IntBits = $clog2(INT_WORDS),
  localparam int PcBits = $clog2(PROGRAM_WORDS),
  localparam int ExpertBits = $clog2(ROUTER_EXPERTS + 1),
  localparam int TopBits = $clog2(ROUTER_TOP + 1),
  localparam int Csrs = 27
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              start_i,
  input  logic [PcBits:0]   length_i,         // words of the program
  input  logic [32*Csrs-1:0] csr_reset_i,     // control registers when a program starts
  output logic              running_o,
  output logic [2:0]        trap_o,           // 0: none
  // Host access to the memories, while nothing runs: 0 vector, 1 FP, 2 INT, 3 instructions.
  input  logic              host_write_i,
  input  logic [1:0]        host_space_i,
  input  logic [15:0]       host_address_i,
  input  logic [Row-1:0]    host_data_i,
  output logic [Row-1:0]    host_data_o,      // a cycle later
  // Transfers: a descriptor for one cycle, then rows, and done with the last one or later.
  output logic              dma_request_o,
  output logic [63:0]       dma_address_o,
  output logic [31:0]       dma_offset_o,
  output logic [31:0]       dma_scales_o,
  output logic [31:0]       dma_stride_o,
  output logic [31:0]       dma_rows_o,
  output logic [RowBits-1:0] dma_target_o,
  output logic [1:0]        dma_mode_o,       // {prec, rstride}
  input  logic              dma_write_i,
  input  logic [RowBits-1:0] dma_row_i,
  input  logic [Row-1:0]    dma_data_i,
  input  logic              dma_done_i,
  // Instructions that other units execute, one at a time; their words and registers hold until the last cycle.
  output logic              external_o,       // first cycle
  output logic [31:0]       external_word_o,
  output logic [31:0]       external_d_o,
  output logic [31:0]       external_a_o,
  output logic [31:0]       external_b_o,
  input  logic              external_done_i,  // last cycle
  input  logic [2:0]        external_trap_i,  // in the first cycle
  input  logic              external_read_i,
  input  logic [RowBits-1:0] external_read_row_i,
  output logic [Row-1:0]    external_data_o,  // a cycle later
  input  logic              external_write_i,
  input  logic [RowBits-1:0] external_write_row_i,
  input  logic [VLEN-1:0]   external_lanes_i,
  input  logic [Row-1:0]    external_data_i,
  // The executing instruction, for traces; registers.
  output logic              issue_o,
  output logic [PcBits-1:0] pc_o,
  output logic [511:0]      gp_o,
  output logic [255:0]      fp_o,
  output logic [32*Csrs-1:0] csr_o,
  output logic [511:0]      addresses_o,
  output logic [31:0]       mask_o
);
`include "traps.svh"
  `DLLM_CHECK_PARAMETER(g_lanes_are_a_power_of_two, VLEN >= 4 && (VLEN & (VLEN - 1)) == 0)
  `DLLM_CHECK_PARAMETER(g_sections_fit_a_row, HLEN >= 1 && HLEN <= VLEN && (HLEN & (HLEN - 1)) == 0)
  `DLLM_CHECK_PARAMETER(g_memories_are_powers_of_two, (VRAM_ROWS & (VRAM_ROWS - 1)) == 0 &&
                        (FP_WORDS & (FP_WORDS - 1)) == 0 && (INT_WORDS & (INT_WORDS - 1)) == 0 &&
                        (PROGRAM_WORDS & (PROGRAM_WORDS - 1)) == 0)

  logic [31:0] gp_q[16];
  logic running_q, loop_trapped_q;
  logic [2:0] trap_q;

  // ---- Decode -------------------------------------------------------------------------------------------------------
  logic [31:0] first, second;
  logic [PcBits-1:0] fetch, pc;
  logic valid, finished, take, ready;
  logic loop_write, loop_trap, hold_loop;
  logic [3:0] loop_register;
  logic [31:0] loop_data;
  logic x_gp_write;
  logic [3:0] x_register;
  logic [31:0] x_gp_data;

  logic c_start, c_end, c_branch, c_break, c_writes_gp, c_two, c_select, c_external, descending;
  logic [31:0] r_d, r_a, r_b, r_c, r_t, word_address, elements;
  logic [TopBits-1:0] router_top;
  logic [PcBits-1:0] first_end, second_end;
  logic [32*Csrs-1:0] csr_next;
  logic [RowBits-1:0] first_row;
  logic [2:0] trap;
  decode #(
    .EXTERNAL(EXTERNAL), .FORMATS(FORMATS), .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS),
    .FP_WORDS(FP_WORDS), .INT_WORDS(INT_WORDS), .ROUTER_TOP(ROUTER_TOP), .DRAWS(DRAWS)
  ) i_decode (
    .word_i(first), .gp_i(gp_o), .write_i(x_gp_write), .write_register_i(x_register), .write_data_i(x_gp_data),
    .csr_i(csr_next), .loop_start_o(c_start), .loop_end_o(c_end), .branch_o(c_branch), .break_o(c_break),
    .external_o(c_external), .writes_gp_o(c_writes_gp), .two_rows_o(c_two), .select_o(c_select), .d_o(r_d),
    .a_o(r_a), .b_o(r_b), .c_o(r_c), .t_o(r_t), .row_o(first_row), .word_address_o(word_address),
    .elements_o(elements), .router_top_o(router_top), .descending_o(descending), .trap_o(trap)
  );

  // For the second word: whether it is a loop, and its register with the result of this cycle.
  logic s_start, s_end;
  logic [31:0] r_second;
  assign s_start = second[5:0] == dllm_isa_pkg::OP_C_LOOP_START;
  assign s_end = second[5:0] == dllm_isa_pkg::OP_C_LOOP_END;
  assign r_second = x_gp_write && x_register == second[9:6] ? x_gp_data : gp_q[second[9:6]];
  logic stop, port_b_write;
  assign take = valid && ready && !stop && !(c_two && port_b_write) && !(`FAULT(12) && x_valid_q && x_int);
  // Another unit traps in the first cycle of its instruction: loops after it are decoded then, not with it.
  sequencer #(.ADDRESS(PcBits), .DEPTH(LOOP_DEPTH)) i_sequencer (
    .clk_i, .rst_ni, .start_i, .stop_i(stop), .length_i, .fetch_o(fetch), .first_i(first), .second_i(second),
    .first_is_start_i(c_start), .first_is_end_i(c_end), .first_is_branch_i(c_branch),
    .first_writes_gp_i(c_writes_gp), .first_stops_i(c_break || trap != TrapNone || c_external),
    .first_end_i(first_end), .second_end_i(second_end), .second_is_start_i(s_start), .second_is_end_i(s_end),
    .take_i(take), .hold_loop_i(hold_loop),
    .counter_first_i(r_d), .counter_second_i(r_second), .valid_o(valid), .end_o(finished), .pc_o(pc),
    .write_o(loop_write), .write_register_o(loop_register), .write_data_o(loop_data), .trap_o(loop_trap)
  );

  // ---- Execute ------------------------------------------------------------------------------------------------------
  logic x_valid_q, x_first_q, x_last, x_done;
  logic [31:0] x_word_q, x_a_q, x_b_q, x_d_q, x_k_q, x_t_q, x_address_q, x_elements_q;
  logic [TopBits-1:0] x_router_top_q;
  logic [PcBits-1:0] x_pc_q;
  logic [2:0] x_trap_q;
  logic x_descending_q;
  logic x_int, x_load_int, x_store_int, x_scalar, x_load_fp, x_store_fp, x_map, x_select, x_prefetch, x_setter,
        x_break, x_external, x_vector, x_max, x_max_index, x_sum, x_router, x_draw;
  /* verilator lint_off PINCONNECTEMPTY */
  instruction_class #(.EXTERNAL(EXTERNAL)) i_x_class (
    .word_i(x_word_q), .loop_start_o(), .loop_end_o(), .int_o(x_int), .load_int_o(x_load_int),
    .store_int_o(x_store_int), .scalar_o(x_scalar), .load_fp_o(x_load_fp), .store_fp_o(x_store_fp), .map_o(x_map),
    .select_o(x_select), .prefetch_o(x_prefetch), .setter_o(x_setter), .branch_o(), .break_o(x_break),
    .external_o(x_external), .known_o()
  );
  vector_class i_x_vector (
    .word_i(x_word_q), .add_o(), .multiply_o(), .exp_o(), .root_o(), .extreme_o(), .max_o(x_max),
    .max_index_o(x_max_index), .max_seg_o(), .sum_o(x_sum), .sum_seg_o(), .scan_o(), .shift_o(), .hadamard_o(),
    .top_o(), .router_o(x_router), .draw_o(x_draw), .known_o(), .row_rs1_o(), .row_rs2_o(), .row_rd_o()
  );
  /* verilator lint_on PINCONNECTEMPTY */
  logic begins;  // the first cycle of an instruction without a trap
  assign begins = x_valid_q && x_first_q && x_trap_q == TrapNone;
  assign ready = !x_valid_q || x_last;
  assign x_register = x_word_q[9:6];
  assign hold_loop = x_valid_q && !x_last && (x_max_index || x_draw || x_int || x_load_int) && x_register == first[9:6];

  logic [15:0] f_d, f_a, f_b, f_c, scalar_result, fp_word;
  logic [31:0] f_d_wide;
  logic [Row-1:0] row_a, row_b, vector_row;
  logic [VLEN-1:0] set;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_set
      assign set[i] = row_a[16*i+:15] != 15'd0;
    end
  endgenerate
  logic vector_done, vector_writes, max_found, max_greater, router_write, select_done;
  logic [15:0] max_value, router_weight;
  logic drawn;
  logic [15:0] drawn_logit;
  logic [63:0] running_key, drawn_key;
  logic [Lane-1:0] max_lane, drawn_lane;
  logic [31:0] sum;
  logic [ExpertBits-1:0] router_next, router_expert;
  logic [TopBits-1:0] router_index;
  vector_unit #(
    .VLEN(VLEN), .HLEN(HLEN), .ADD_STAGES(ADD_STAGES), .MUL_STAGES(MUL_STAGES), .EXP_STAGES(EXP_STAGES),
    .RECI_STAGES(RECI_STAGES), .MAX_STAGES(MAX_STAGES), .SUM_STAGES(SUM_STAGES), .SCAN_STAGES(SCAN_STAGES),
    .DRAWS(DRAWS), .DRAW_STAGES(DRAW_STAGES), .ROUTER_TOP(ROUTER_TOP), .ROUTER_EXPERTS(ROUTER_EXPERTS)
  ) i_vector (
    .clk_i, .rst_ni, .begin_i(begins), .word_i(x_word_q), .row_a_i(row_a), .row_b_i(row_b), .mask_i(mask_o),
    .scalar_i(f_b), .distance_i(x_b_q), .k_i(x_k_q), .elements_i(x_elements_q), .router_top_i(x_router_top_q),
    .running_max_i(x_max ? f_d : f_c), .running_sum_i(f_d_wide), .running_key_i(running_key), .position_i(x_t_q),
    .csr_i(csr_o), .drawn_o(drawn), .drawn_lane_o(drawn_lane), .drawn_logit_o(drawn_logit), .drawn_key_o(drawn_key),
    .known_o(x_vector), .done_o(vector_done), .writes_row_o(vector_writes), .row_o(vector_row), .found_o(max_found),
    .greater_o(max_greater), .max_o(max_value), .max_lane_o(max_lane), .sum_o(sum), .router_next_o(router_next),
    .router_write_o(router_write), .router_index_o(router_index), .router_weight_o(router_weight),
    .router_expert_o(router_expert)
  );
  logic select_write, map_done;
  logic [IntBits-1:0] select_address, select_next;
  logic [31:0] int_a, int_b, select_word;
  select_int #(.LANES(VLEN), .ADDRESS(IntBits)) i_select (
    .clk_i, .rst_ni, .start_i(begins && x_select && x_elements_q != 32'd0), .length_i(x_elements_q[IntBits:0]),
    .descending_i(x_descending_q), .target_i(IntBits'(x_d_q)), .mask_i(set), .chosen_word_i(int_a),
    .other_word_i(int_b), .done_o(select_done), .next_o(select_next), .write_o(select_write),
    .address_o(select_address), .word_o(select_word)
  );
  scalar_fp i_scalar (
    .op_i(x_word_q[5:0]), .a_i(f_a), .b_i(f_b), .result_o(scalar_result)
  );
  fp_registers #(.DRAWS(DRAWS)) i_fp_registers (
    .clk_i, .rst_ni, .word_i(x_word_q), .ends_i(ends), .scalar_i(x_scalar), .scalar_result_i(scalar_result),
    .load_i(x_load_fp), .loaded_i(fp_word), .max_i(x_max), .max_index_i(x_max_index), .max_found_i(max_found),
    .max_greater_i(max_greater), .max_value_i(max_value), .sum_i(x_sum), .sum_value_i(sum), .draw_i(x_draw),
    .drawn_i(drawn), .drawn_logit_i(drawn_logit), .drawn_key_i(drawn_key), .d_o(f_d), .a_o(f_a), .b_o(f_b), .c_o(f_c),
    .d_wide_o(f_d_wide), .key_o(running_key), .fp_o
  );

  logic [Lane:0] map_next;
  logic [Row-1:0] map_row;
  map_row #(.VLEN(VLEN)) i_map (
    .clk_i, .first_i(x_first_q), .elements_i(x_elements_q), .word_i(fp_word), .next_o(map_next), .done_o(map_done),
    .row_o(map_row)
  );

  always_comb begin
    x_done = 1'b1;
    if (x_vector) x_done = vector_done;
    if (x_select) x_done = select_done || x_elements_q == 32'd0;
    if (x_map) x_done = map_done;
    if (x_prefetch) x_done = dma_done_i;
    if (x_external) x_done = external_done_i;
  end
  logic [2:0] x_trap;
  assign x_trap = begins && x_external ? external_trap_i : x_trap_q;
  assign x_last = x_valid_q && (x_done || x_trap != TrapNone);
  assign stop = x_valid_q && (x_trap != TrapNone || x_break);

  // Results.
  logic ends;
  logic [31:0] int_result;
  scalar_int i_scalar_int (.word_i(x_word_q), .a_i(x_a_q), .b_i(x_b_q), .result_o(int_result));
  assign ends = x_last && x_trap == TrapNone;
  always_comb begin
    x_gp_data = int_result;
    if (x_load_int) x_gp_data = int_a;
    if (x_max_index || x_draw) x_gp_data = x_b_q + (x_draw ? 32'(drawn_lane) : 32'(max_lane));
  end
  assign x_gp_write = ends && x_register != 4'd0 && (x_int || x_load_int || (x_max_index && max_greater) ||
                                                        (x_draw && drawn));

  // ---- SRAM domains -------------------------------------------------------------------------------------------------
  logic idle, x_vram_write;
  logic [Row-1:0] x_row;
  logic [RowBits-1:0] read_row, port_b_row;
  assign idle = !running_q;
  assign x_vram_write = ends && ((x_vector && vector_writes) || x_map);
  assign x_row = x_map ? map_row : vector_row;
  // Instructions that go through several rows read that of the next element while they execute.
  logic streaming;
  assign streaming = x_valid_q && (x_select || x_router) && !x_last;
  assign port_b_write = x_vram_write || ((dma_write_i || external_write_i) && running_q);
  always_comb begin
    read_row = first_row;
    port_b_row = r_b[Lane+:RowBits];
    if (streaming) read_row = x_select ? x_k_q[Lane+:RowBits] + RowBits'(32'(select_next) >> Lane)
                                       : x_a_q[Lane+:RowBits] + RowBits'(32'(router_next) >> Lane);
    if (idle) begin
      read_row = host_address_i[RowBits-1:0];
      port_b_row = host_address_i[RowBits-1:0];
    end else if (x_vram_write) begin
      port_b_row = x_d_q[Lane+:RowBits];
    end else if (dma_write_i || external_write_i) begin
      port_b_row = external_write_i ? external_write_row_i : dma_row_i;
    end
    if (external_read_i) read_row = external_read_row_i;
  end
  sram_rows #(.WIDTH(Row), .ROWS(VRAM_ROWS)) i_vram (
    .clk_i, .read_a_i(idle || take || streaming || external_read_i), .row_a_i(read_row), .data_a_o(row_a),
    .read_b_i(take),
    .write_b_i(idle ? host_write_i && host_space_i == 2'd0 : port_b_write), .row_b_i(port_b_row),
    .lanes_b_i(external_write_i ? external_lanes_i : '1),
    .data_b_i(idle ? host_data_i : x_vram_write ? x_row : external_write_i ? external_data_i : dma_data_i),
    .data_b_o(row_b)
  );

  logic [15:0] unused_fp;
  logic [FpBits-1:0] fp_read;
  always_comb begin
    fp_read = FpBits'(word_address);
    if (idle) fp_read = host_address_i[FpBits-1:0];
    else if (x_valid_q && x_map && !x_last) fp_read = FpBits'(x_address_q) + FpBits'(map_next);
  end
  sram_words #(.WIDTH(16), .WORDS(FP_WORDS)) i_fp (
    .clk_i, .read_a_i(1'b1), .address_a_i(fp_read), .data_a_o(fp_word), .read_b_i(1'b0), .address_b_i('0),
    .data_b_o(unused_fp), .write_i(idle ? host_write_i && host_space_i == 2'd1 : (ends && x_store_fp) || router_write),
    .address_i(idle ? host_address_i[FpBits-1:0]
               : x_router ? FpBits'(x_d_q) + FpBits'(router_index) : FpBits'(x_address_q)),
    .data_i(idle ? host_data_i[15:0] : x_router ? router_weight : f_d)
  );

  logic [IntBits-1:0] int_read_a, int_read_b, first_element, int_target;
  always_comb begin
    int_target = x_address_q[IntBits-1:0];
    if (idle) int_target = host_address_i[IntBits-1:0];
    else if (x_select) int_target = select_address;
    else if (x_router) int_target = IntBits'(x_b_q) + IntBits'(router_index);
  end
  assign first_element = descending ? IntBits'(elements) - IntBits'(1) : '0;
  always_comb begin
    int_read_a = c_select ? IntBits'(r_a) + first_element : IntBits'(word_address);
    int_read_b = IntBits'(r_b) + first_element;
    if (idle) int_read_a = host_address_i[IntBits-1:0];
    else if (streaming) begin
      int_read_a = IntBits'(x_a_q) + select_next;
      int_read_b = IntBits'(x_b_q) + select_next;
    end
  end
  sram_words #(.WIDTH(32), .WORDS(INT_WORDS)) i_int (
    .clk_i, .read_a_i(1'b1), .address_a_i(int_read_a), .data_a_o(int_a), .read_b_i(1'b1), .address_b_i(int_read_b),
    .data_b_o(int_b), .write_i(idle ? host_write_i && host_space_i == 2'd2
                                    : select_write || router_write || (ends && x_store_int)),
    .address_i(int_target),
    .data_i(idle ? host_data_i[31:0] : x_select ? select_word : x_router ? 32'(router_expert) : x_d_q)
  );
  program_memory #(.WORDS(PROGRAM_WORDS), .LOOP_DEPTH(LOOP_DEPTH)) i_program (
    .clk_i, .write_i(idle && host_write_i && host_space_i == 2'd3), .address_i(host_address_i[PcBits-1:0]),
    .word_i(host_data_i[31:0]), .fetch_i(fetch), .first_o(first), .second_o(second), .first_end_o(first_end),
    .second_end_o(second_end)
  );

  // What the host requested a cycle ago.
  logic [1:0] space_q;
  always_ff @(posedge clk_i) space_q <= host_space_i;
  assign host_data_o = space_q == 2'd0 ? row_a
                       : space_q == 2'd1 ? {{(Row - 16){1'b0}}, fp_word} : {{(Row - 32){1'b0}}, int_a};

  // ---- State --------------------------------------------------------------------------------------------------------
  logic halt;
  // A loop instruction is decoded early: what comes before it in the program still executes, and may trap first.
  assign halt = ((finished || loop_trapped_q) && ready) || stop;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      x_valid_q <= 1'b0;
      x_first_q <= 1'b0;
      loop_trapped_q <= 1'b0;
      trap_q <= TrapNone;
    end else if (start_i) begin
      running_q <= 1'b1;
      x_valid_q <= 1'b0;
      loop_trapped_q <= 1'b0;
      trap_q <= TrapNone;
    end else if (running_q) begin
      if (halt) running_q <= 1'b0;
      if (loop_trap) loop_trapped_q <= 1'b1;
      if (halt && loop_trapped_q) trap_q <= TrapLoop;
      if (x_valid_q && x_trap != TrapNone) trap_q <= x_trap;
      x_first_q <= take;
      x_valid_q <= halt ? 1'b0 : take || (x_valid_q && !x_last);
    end
  end
  always_ff @(posedge clk_i) begin
    if (take) begin
      x_word_q <= first;
      x_pc_q <= pc;
      x_a_q <= r_a;
      x_b_q <= r_b;
      x_d_q <= r_d;
      x_k_q <= r_c;
      x_t_q <= r_t;
      x_address_q <= word_address;
      x_elements_q <= elements;
      x_router_top_q <= router_top;
      x_trap_q <= trap;
      x_descending_q <= descending;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < 16; i++) gp_q[i] <= 32'd0;
    end else begin
      if (x_gp_write) gp_q[x_register] <= x_gp_data;
      if (loop_write && loop_register != 4'd0) gp_q[loop_register] <= loop_data;
    end
  end

  control_registers i_control (
    .clk_i, .rst_ni, .start_i, .csr_reset_i, .set_i(ends && x_setter), .word_i(x_word_q), .d_i(x_d_q), .a_i(x_a_q),
    .b_i(x_b_q), .address_o(dma_address_o), .addresses_o, .scales_o(dma_scales_o), .stride_o(dma_stride_o), .mask_o,
    .csr_o, .csr_next_o(csr_next)
  );
  assign dma_rows_o = csr_o[32*dllm_isa_pkg::CSR_PREFETCH_V_ROWS+:32];

  generate
    for (genvar i = 0; i < 16; i++) begin : g_gp
      assign gp_o[32*i+:32] = gp_q[i];
    end
  endgenerate
  assign running_o = running_q;
  assign trap_o = trap_q;
  assign issue_o = x_valid_q && x_first_q;
  assign pc_o = x_pc_q;
  assign external_o = begins && x_external;
  assign external_word_o = x_word_q;
  assign external_d_o = x_d_q;
  assign external_a_o = x_a_q;
  assign external_b_o = x_b_q;
  assign external_data_o = row_a;
  assign dma_request_o = begins && x_prefetch;
  assign dma_offset_o = x_a_q;
  assign dma_target_o = x_d_q[Lane+:RowBits];
  assign dma_mode_o = {x_word_q[22], x_word_q[18]};

  logic unused_bits;
  assign unused_bits = &{host_address_i, x_address_q};

  `DLLM_ASSERT(a_one_writer_of_vram, !running_q || $onehot0({x_vram_write, dma_write_i, external_write_i}))
  `DLLM_ASSERT(a_units_write_in_their_time, !(running_q && external_write_i && !x_external))
  `DLLM_ASSERT(a_units_read_in_their_time, !(take && external_read_i))
  `DLLM_ASSERT(a_one_writer_of_int_mem, !running_q || $onehot0({select_write, router_write, ends && x_store_int}))
  `DLLM_ASSERT(a_nothing_leaves_decode_early, !running_q || !(take && x_valid_q && !x_last))
  `DLLM_ASSERT(a_gp0_stays_zero, gp_q[0] == 32'd0)
endmodule
