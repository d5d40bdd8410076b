// The engine: sequencer, vector unit, scalar units and the three SRAM domains. Instructions execute one at a time, each
// to completion, as under `--issue serial` in the cycle simulator. An instruction is decoded, its general registers are
// read and its SRAM reads are issued during the last cycle of the previous one.
`include "fault.svh"
module engine #(
  parameter int VLEN = 16,
  parameter int HLEN = 4,  // lanes of a section of V_MASK
  parameter int VRAM_ROWS = 256,
  parameter int FP_WORDS = 256,
  parameter int INT_WORDS = 256,
  parameter int PROGRAM_WORDS = 1024,
  parameter bit EXTERNAL = 0,  // there are a matrix unit and a DMA engine
  parameter int ADD_STAGES = 2,
  parameter int EXP_STAGES = 1,
  parameter int MAX_STAGES = 4,
  parameter int SUM_STAGES = 8,
  localparam int Row = 16 * VLEN,
  localparam int Lane = $clog2(VLEN),
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int FpBits = $clog2(FP_WORDS),
  localparam int IntBits = $clog2(INT_WORDS),
  localparam int PcBits = $clog2(PROGRAM_WORDS)
) (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              start_i,
  input  logic [PcBits:0]   length_i,         // words of the program
  input  logic [31:0]       prefetch_rows_i,  // reset value of the control register
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
  output logic [255:0]      fp_o
);
`include "traps.svh"

  logic [31:0] gp_q[16];
  logic [31:0] fp_q[8];
  logic [31:0] mask;
  logic running_q;
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

  logic c_start, c_end, c_break, c_writes_gp, c_two, c_select, descending;
  logic [31:0] r_d, r_a, r_b, r_c, word_address, elements;
  logic [RowBits-1:0] first_row;
  logic [2:0] trap;
  decode #(
    .EXTERNAL(EXTERNAL), .VLEN(VLEN), .VRAM_ROWS(VRAM_ROWS), .FP_WORDS(FP_WORDS), .INT_WORDS(INT_WORDS)
  ) i_decode (
    .word_i(first), .gp_i(gp_o), .write_i(x_gp_write), .write_register_i(x_register), .write_data_i(x_gp_data),
    .prefetch_rows_i(dma_rows_o), .loop_start_o(c_start), .loop_end_o(c_end), .break_o(c_break),
    .writes_gp_o(c_writes_gp), .two_rows_o(c_two), .select_o(c_select), .d_o(r_d), .a_o(r_a), .b_o(r_b), .c_o(r_c),
    .row_o(first_row), .word_address_o(word_address), .elements_o(elements), .descending_o(descending),
    .trap_o(trap)
  );

  // For the second word: whether it is a loop, and its register with the result of this cycle.
  logic s_start, s_end;
  logic [31:0] r_second;
  assign s_start = second[5:0] == dllm_isa_pkg::OP_C_LOOP_START;
  assign s_end = second[5:0] == dllm_isa_pkg::OP_C_LOOP_END;
  assign r_second = x_gp_write && x_register == second[9:6] ? x_gp_data : gp_q[second[9:6]];
  logic stop, port_b_write;
  assign take = valid && ready && !stop && !(c_two && port_b_write) && !(`FAULT(12) && x_valid_q && x_int);
  sequencer #(.ADDRESS(PcBits)) i_sequencer (
    .clk_i, .rst_ni, .start_i, .stop_i(stop), .length_i, .fetch_o(fetch), .first_i(first), .second_i(second),
    .first_is_start_i(c_start), .first_is_end_i(c_end),
    .first_writes_gp_i(c_writes_gp), .first_is_break_i(c_break),
    .second_is_start_i(s_start), .second_is_end_i(s_end), .take_i(take), .hold_loop_i(hold_loop),
    .counter_first_i(r_d), .counter_second_i(r_second), .valid_o(valid), .end_o(finished), .pc_o(pc),
    .write_o(loop_write), .write_register_o(loop_register), .write_data_o(loop_data), .trap_o(loop_trap)
  );

  // ---- Execute ------------------------------------------------------------------------------------------------------
  logic x_valid_q, x_first_q, x_last, x_done;
  logic [31:0] x_word_q, x_a_q, x_b_q, x_d_q, x_k_q, x_address_q, x_elements_q;
  logic [PcBits-1:0] x_pc_q;
  logic [2:0] x_trap_q;
  logic x_descending_q;
  logic x_int, x_load_int, x_store_int, x_scalar, x_load_fp, x_store_fp, x_map, x_add, x_exp, x_max, x_max_index, x_sum,
        x_top, x_select, x_prefetch, x_setter, x_break, x_external;
  /* verilator lint_off PINCONNECTEMPTY */
  instruction_class #(.EXTERNAL(EXTERNAL)) i_x_class (
    .word_i(x_word_q), .loop_start_o(), .loop_end_o(), .int_o(x_int), .load_int_o(x_load_int),
    .store_int_o(x_store_int), .scalar_o(x_scalar), .load_fp_o(x_load_fp), .store_fp_o(x_store_fp), .map_o(x_map),
    .add_o(x_add), .two_rows_o(), .exp_o(x_exp), .max_o(x_max), .max_index_o(x_max_index), .sum_o(x_sum),
    .top_o(x_top), .select_o(x_select), .prefetch_o(x_prefetch), .setter_o(x_setter), .break_o(x_break),
    .external_o(x_external), .known_o()
  );
  /* verilator lint_on PINCONNECTEMPTY */
  logic begins;  // the first cycle of an instruction without a trap
  assign begins = x_valid_q && x_first_q && x_trap_q == TrapNone;
  assign ready = !x_valid_q || x_last;
  assign x_register = x_word_q[9:6];
  assign hold_loop = x_valid_q && !x_last && (x_max_index || x_int || x_load_int) && x_register == first[9:6];

  // f registers hold FP32; readers get BF16.
  logic [15:0] f_d, f_a, f_b, f_c;
  f32_to_bf16 i_f_d (.value_i(fp_q[x_word_q[8:6]]), .bf16_o(f_d));
  f32_to_bf16 i_f_a (.value_i(fp_q[x_word_q[12:10]]), .bf16_o(f_a));
  f32_to_bf16 i_f_b (.value_i(fp_q[x_word_q[16:14]]), .bf16_o(f_b));
  f32_to_bf16 i_f_c (.value_i(fp_q[x_word_q[20:18]]), .bf16_o(f_c));

  logic [Row-1:0] row_a, row_b, add_row, exp_row;
  logic [VLEN-1:0] active, set;
  logic masked;
  assign masked = x_word_q[21:18] != 4'd0 && !x_max_index;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_active
      if (i / HLEN < 32) begin : g_section
        assign active[i] = !masked || mask[i/HLEN];
      end else begin : g_beyond
        assign active[i] = !masked;
      end
      assign set[i] = x_select ? row_a[16*i+:15] != 15'd0 : row_b[16*i+:15] != 15'd0;
    end
  endgenerate

  logic add_valid, exp_valid, max_valid, max_found, max_greater, sum_valid, top_done, select_done;
  logic [15:0] max_value;
  logic [Lane-1:0] max_lane, select_next;
  logic [31:0] sum;
  logic [VLEN-1:0] top;
  logic reversed, subtract, two_rows;
  assign two_rows = x_word_q[5:0] == dllm_isa_pkg::OP_V_ADD_VV || x_word_q[5:0] == dllm_isa_pkg::OP_V_SUB_VV;
  assign subtract = x_word_q[5:0] == dllm_isa_pkg::OP_V_SUB_VV || x_word_q[5:0] == dllm_isa_pkg::OP_V_SUB_VF;
  assign reversed = x_word_q[5:0] == dllm_isa_pkg::OP_V_SUB_VF && x_word_q[25:22] == 4'd1;
  vector_lanes #(.VLEN(VLEN), .ADD_STAGES(ADD_STAGES), .EXP_STAGES(EXP_STAGES)) i_lanes (
    .clk_i, .rst_ni, .add_valid_i(begins && x_add), .exp_valid_i(begins && x_exp), .negate_a_i(reversed),
    .negate_b_i(subtract && !reversed), .a_i(row_a),
    .b_i(two_rows ? row_b : {VLEN{f_b}}), .active_i(active),
    .add_valid_o(add_valid), .exp_valid_o(exp_valid), .add_o(add_row), .exp_o(exp_row)
  );
  max_index #(.VLEN(VLEN), .STAGES(MAX_STAGES)) i_max (
    .clk_i, .rst_ni, .valid_i(begins && (x_max || x_max_index)), .row_i(row_a), .active_i(active),
    .running_i(x_max ? f_d : f_c), .valid_o(max_valid), .found_o(max_found), .greater_o(max_greater),
    .value_o(max_value), .lane_o(max_lane)
  );
  row_sum #(.VLEN(VLEN), .STAGES(SUM_STAGES)) i_sum (
    .clk_i, .rst_ni, .valid_i(begins && x_sum), .row_i(row_a), .active_i(active), .running_i(fp_q[x_word_q[8:6]]),
    .valid_o(sum_valid), .sum_o(sum)
  );
  top_mask #(.LANES(VLEN)) i_top (
    .clk_i, .rst_ni, .start_i(begins && x_top && x_elements_q != 32'd0), .length_i(x_elements_q[Lane:0]),
    .k_i(x_k_q), .row_i(row_a), .candidates_i(set), .done_o(top_done), .mask_o(top)
  );
  logic select_write, map_done;
  logic [IntBits-1:0] select_address;
  logic [31:0] int_a, int_b, select_word;
  select_int #(.LANES(VLEN), .ADDRESS(IntBits)) i_select (
    .clk_i, .rst_ni, .start_i(begins && x_select && x_elements_q != 32'd0), .length_i(x_elements_q[Lane:0]),
    .descending_i(x_descending_q), .target_i(IntBits'(x_d_q)), .mask_i(set), .chosen_word_i(int_a),
    .other_word_i(int_b), .done_o(select_done), .next_o(select_next), .write_o(select_write),
    .address_o(select_address), .word_o(select_word)
  );
  logic [15:0] scalar_result, fp_word;
  scalar_fp i_scalar (
    .op_i(x_word_q[5:0]), .a_i(f_a), .b_i(f_b), .result_o(scalar_result)
  );

  logic [Lane:0] map_next;
  logic [Row-1:0] map_row;
  map_row #(.VLEN(VLEN)) i_map (
    .clk_i, .first_i(x_first_q), .elements_i(x_elements_q), .word_i(fp_word), .next_o(map_next), .done_o(map_done),
    .row_o(map_row)
  );

  always_comb begin
    x_done = 1'b1;
    if (x_add) x_done = add_valid;
    if (x_exp) x_done = exp_valid;
    if (x_max || x_max_index) x_done = max_valid;
    if (x_sum) x_done = sum_valid;
    if (x_top) x_done = top_done || x_elements_q == 32'd0;
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
  logic ends, fp_write;
  logic [2:0] fp_register;
  logic [31:0] fp_data, product;
  assign ends = x_last && x_trap == TrapNone;
  assign product = x_a_q * x_b_q;
  always_comb begin
    case (x_word_q[5:0])
      dllm_isa_pkg::OP_S_ADD_INT: x_gp_data = x_a_q + x_b_q;
      dllm_isa_pkg::OP_S_ADDI_INT: x_gp_data = x_a_q + {14'b0, x_word_q[31:14]};
      dllm_isa_pkg::OP_S_SUB_INT: x_gp_data = x_a_q - x_b_q;
      dllm_isa_pkg::OP_S_MUL_INT: x_gp_data = product;
      dllm_isa_pkg::OP_S_LUI_INT: x_gp_data = {x_word_q[29:10], 12'b0};
      dllm_isa_pkg::OP_S_LD_INT: x_gp_data = int_a;
      default: x_gp_data = x_b_q + {{(32 - Lane){1'b0}}, max_lane};
    endcase
  end
  assign x_gp_write = ends && x_register != 4'd0 && (x_int || x_load_int || (x_max_index && max_greater));

  always_comb begin
    fp_register = x_max_index ? x_word_q[20:18] : x_word_q[8:6];
    fp_write = ends && fp_register != 3'd0 &&
               (x_scalar || x_load_fp || x_sum || (x_max && max_found) || (x_max_index && max_greater));
    fp_data = {scalar_result, 16'b0};
    if (x_load_fp) fp_data = {fp_word, 16'b0};
    // V_RED_MAX leaves BF16 in the register even if that value stays the maximum.
    if (x_max || x_max_index) fp_data = {max_greater ? max_value : f_d, 16'b0};
    if (x_sum) fp_data = sum;
    if (x_word_q[5:0] == dllm_isa_pkg::OP_S_LI_FP && x_word_q[31:30] == 2'd0) fp_data = {x_word_q[29:14], 16'b0};
  end

  // ---- SRAM domains -------------------------------------------------------------------------------------------------
  logic idle, x_vram_write;
  logic [Row-1:0] x_row, top_row;
  logic [RowBits-1:0] read_row, port_b_row;
  assign idle = !running_q;
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_top
      assign top_row[16*i+:16] = top[i] ? 16'h3f80 : 16'h0000;
    end
  endgenerate
  assign x_vram_write = ends && (x_add || x_exp || (x_top && x_elements_q != 32'd0) || x_map);
  assign x_row = x_add ? add_row : x_exp ? exp_row : x_top ? top_row : map_row;
  assign port_b_write = x_vram_write || ((dma_write_i || external_write_i) && running_q);
  always_comb begin
    read_row = first_row;
    port_b_row = r_b[Lane+:RowBits];
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
    .clk_i, .read_a_i(idle || take || external_read_i), .row_a_i(read_row), .data_a_o(row_a), .read_b_i(take),
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
    .data_b_o(unused_fp), .write_i(idle ? host_write_i && host_space_i == 2'd1 : ends && x_store_fp),
    .address_i(idle ? host_address_i[FpBits-1:0] : FpBits'(x_address_q)), .data_i(idle ? host_data_i[15:0] : f_d)
  );

  logic [IntBits-1:0] int_read_a, int_read_b, first_element, int_target;
  logic streaming;
  assign int_target = idle ? host_address_i[IntBits-1:0] : x_select ? select_address : x_address_q[IntBits-1:0];
  assign streaming = x_valid_q && x_select && !x_last;
  assign first_element = descending ? IntBits'(elements) - IntBits'(1) : '0;
  always_comb begin
    int_read_a = c_select ? IntBits'(r_a) + first_element : IntBits'(word_address);
    int_read_b = IntBits'(r_b) + first_element;
    if (idle) int_read_a = host_address_i[IntBits-1:0];
    else if (streaming) begin
      int_read_a = IntBits'(x_a_q) + IntBits'(select_next);
      int_read_b = IntBits'(x_b_q) + IntBits'(select_next);
    end
  end
  sram_words #(.WIDTH(32), .WORDS(INT_WORDS)) i_int (
    .clk_i, .read_a_i(1'b1), .address_a_i(int_read_a), .data_a_o(int_a), .read_b_i(1'b1), .address_b_i(int_read_b),
    .data_b_o(int_b), .write_i(idle ? host_write_i && host_space_i == 2'd2 : select_write || (ends && x_store_int)),
    .address_i(int_target), .data_i(idle ? host_data_i[31:0] : x_select ? select_word : x_d_q)
  );
  sram_words #(.WIDTH(32), .WORDS(PROGRAM_WORDS)) i_program (
    .clk_i, .read_a_i(1'b1), .address_a_i(fetch), .data_a_o(first), .read_b_i(1'b1),
    .address_b_i(fetch + PcBits'(1)), .data_b_o(second), .write_i(idle && host_write_i && host_space_i == 2'd3),
    .address_i(host_address_i[PcBits-1:0]), .data_i(host_data_i[31:0])
  );

  // What the host requested a cycle ago.
  logic [1:0] space_q;
  always_ff @(posedge clk_i) space_q <= host_space_i;
  assign host_data_o = space_q == 2'd0 ? row_a
                       : space_q == 2'd1 ? {{(Row - 16){1'b0}}, fp_word} : {{(Row - 32){1'b0}}, int_a};

  // ---- State --------------------------------------------------------------------------------------------------------
  logic halt;
  assign halt = (finished && ready) || stop || loop_trap;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      x_valid_q <= 1'b0;
      x_first_q <= 1'b0;
      trap_q <= TrapNone;
    end else if (start_i) begin
      running_q <= 1'b1;
      x_valid_q <= 1'b0;
      trap_q <= TrapNone;
    end else if (running_q) begin
      if (halt) running_q <= 1'b0;
      if (loop_trap) trap_q <= TrapLoop;
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
      x_address_q <= word_address;
      x_elements_q <= elements;
      x_trap_q <= trap;
      x_descending_q <= descending;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      for (int i = 0; i < 16; i++) gp_q[i] <= 32'd0;
      for (int i = 0; i < 8; i++) fp_q[i] <= 32'd0;
    end else begin
      if (x_gp_write) gp_q[x_register] <= x_gp_data;
      if (loop_write && loop_register != 4'd0) gp_q[loop_register] <= loop_data;
      if (fp_write) fp_q[fp_register] <= fp_data;
    end
  end

  control_registers i_control (
    .clk_i, .rst_ni, .start_i, .prefetch_rows_i, .set_i(ends && x_setter), .word_i(x_word_q), .d_i(x_d_q), .a_i(x_a_q),
    .b_i(x_b_q), .address_o(dma_address_o), .scales_o(dma_scales_o), .stride_o(dma_stride_o), .mask_o(mask),
    .rows_o(dma_rows_o)
  );

  generate
    for (genvar i = 0; i < 16; i++) begin : g_gp
      assign gp_o[32*i+:32] = gp_q[i];
    end
    for (genvar i = 0; i < 8; i++) begin : g_fp
      assign fp_o[32*i+:32] = fp_q[i];
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

`ifndef SYNTHESIS
  always_ff @(posedge clk_i)
    if (rst_ni && running_q) begin
      assert ($onehot0({add_valid, exp_valid, max_valid, sum_valid, top_done, select_done}));
      assert (!(x_vram_write && dma_write_i) && !(external_write_i && !x_external) && !(take && external_read_i));
      assert (!(select_write && x_store_int));
      assert (!(take && x_valid_q && !x_last));
      assert (!(add_valid && !x_add) && !(sum_valid && !x_sum) && !(exp_valid && !x_exp));
      assert (gp_q[0] == 32'd0 && fp_q[0] == 32'd0);
    end
`endif
endmodule
