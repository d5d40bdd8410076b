// What the issue stage must know of an instruction: its unit, how long it takes, which registers and which cells of the
// memories it touches. A cell shares a valid bit: a row of vector SRAM, a tile of matrix SRAM, 16 words of FP or INT
// SRAM. Times and cells are those of the cycle simulator (src/npu_core/timing/latency.cpp, scoreboard.h).
module issue_decode #(
  parameter int VLEN = 8,
  parameter int MLEN = 8,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int ROWS = 16,      // of vector SRAM
  parameter int TILES = 2,      // of matrix SRAM
  parameter int FP_CELLS = 2,
  parameter int INT_CELLS = 2,
  parameter int TIME = 12,      // bits of a number of cycles; an instruction takes less than half of what they count
  parameter int ADD_STAGES = 2,
  parameter int MUL_STAGES = 1,
  parameter int EXP_STAGES = 1,
  parameter int RECI_STAGES = 2,
  parameter int MAX_STAGES = 4,
  parameter int SUM_STAGES = 8,
  parameter int SCAN_STAGES = 9,
  parameter int DRAW_STAGES = 36,
  parameter int DRAW_CYCLES = 8,  // of V_RED_DRAW on its pipe; four times as many with FP64 keys
  localparam int Cells = ROWS + TILES + FP_CELLS + INT_CELLS,
  localparam int Csrs = 27
) (
  input  logic [31:0]        word_i,
  input  logic [31:0]        d_i,         // registers rd, rs1, rs2, rs3 and funct
  input  logic [31:0]        a_i,
  input  logic [31:0]        b_i,
  input  logic [31:0]        c_i,
  input  logic [31:0]        l_i,
  input  logic [32*Csrs-1:0] csr_i,
  output logic [2:0]         unit_o,      // issue_units.svh
  output logic               int_o,       // the front end's integer unit
  output logic [3:0]         pipe_o,      // of the vector unit
  output logic [TIME-1:0]    latency_o,   // start to result
  output logic [TIME-1:0]    occupies_o,  // start to the next instruction on the same part
  output logic [TIME-1:0]    rows_o,      // operand rows of the array, result rows of a write-out
  output logic [Cells-1:0]   reads_o,
  output logic [ROWS-1:0]    again_o,     // rows that are read as the second operand, too
  output logic [Cells-1:0]   writes_o,
  output logic [7:0]         f_reads_o,
  output logic [7:0]         f_writes_o,
  output logic               accumulates_o,  // f registers that are read and written are added to in the last stage
  output logic               index_o,        // the general register that it writes is added to in the last stage, too
  output logic               ends_loop_o,
  output logic               branch_o,
  output logic [15:0]        gp_reads_o,     // general registers that must be ready
  output logic [15:0]        gp_writes_o,
  output logic [3:0]         sums_o,         // accumulators: tiles, heads, vector, heads' vectors
  output logic               flush_o,        // M_SUM
  output logic               fence_o,
  output logic               long_o          // a time has been cut: TIME is too small
);
`include "issue_units.svh"
  // The pipes of the vector unit, in the order of src/npu_core/timing/latency.h.
  localparam logic [3:0] PipeAdd = 4'd0;
  localparam logic [3:0] PipeMul = 4'd1;
  localparam logic [3:0] PipeExp = 4'd2;
  localparam logic [3:0] PipeReci = 4'd3;
  localparam logic [3:0] PipeMax = 4'd4;
  localparam logic [3:0] PipeSum = 4'd5;
  localparam logic [3:0] PipeScan = 4'd6;
  localparam logic [3:0] PipeShift = 4'd7;
  localparam logic [3:0] PipeHadamard = 4'd8;
  localparam logic [3:0] PipeTop = 4'd9;
  localparam logic [3:0] PipeSelect = 4'd10;
  localparam logic [3:0] PipeDraw = 4'd11;
  localparam int Lane = $clog2(VLEN);
  localparam int Tile = $clog2(MLEN * MLEN);
  localparam int Heads = MLEN / HLEN;

  logic [5:0] op;
  logic [3:0] rd, rs1, rs2, rs3, fn;
  assign op = word_i[5:0];
  assign {fn, rs3, rs2, rs1, rd} = word_i[25:6];

  logic is_int, is_load_int, is_store_int, is_scalar, is_load_fp, is_store_fp, is_map, is_select, is_start, is_end,
        is_branch, is_external, is_setter;
  logic v_add, v_multiply, v_exp, v_root, v_extreme, v_max, v_index, v_max_seg, v_sum, v_sum_seg, v_scan, v_shift,
        v_hadamard, v_top, v_router, v_draw, v_known, v_row_a, v_row_b, v_row_d;
  /* verilator lint_off PINCONNECTEMPTY */
  instruction_class #(.EXTERNAL(1'b1)) i_class (
    .word_i, .loop_start_o(is_start), .loop_end_o(is_end), .int_o(is_int), .load_int_o(is_load_int),
    .store_int_o(is_store_int), .scalar_o(is_scalar), .load_fp_o(is_load_fp), .store_fp_o(is_store_fp), .map_o(is_map),
    .select_o(is_select), .prefetch_o(), .setter_o(is_setter), .branch_o(is_branch), .break_o(),
    .external_o(is_external), .known_o()
  );
  vector_class i_vector (
    .word_i, .add_o(v_add), .multiply_o(v_multiply), .exp_o(v_exp), .root_o(v_root), .extreme_o(v_extreme),
    .max_o(v_max), .max_index_o(v_index), .max_seg_o(v_max_seg), .sum_o(v_sum), .sum_seg_o(v_sum_seg), .scan_o(v_scan),
    .shift_o(v_shift), .hadamard_o(v_hadamard), .top_o(v_top), .router_o(v_router), .draw_o(v_draw), .known_o(v_known),
    .row_rs1_o(v_row_a), .row_rs2_o(v_row_b), .row_rd_o(v_row_d)
  );
  /* verilator lint_on PINCONNECTEMPTY */

  function automatic logic [31:0] csr(input logic [4:0] number);
    csr = csr_i[32*32'(number)+:32];
  endfunction
  logic [31:0] mm_rows, head_rows, head_cols, stride, slices;
  assign mm_rows = csr(dllm_isa_pkg::CSR_MM_ROWS);
  assign head_cols = csr(dllm_isa_pkg::CSR_BMM_COLS);
  assign stride = csr(dllm_isa_pkg::CSR_BMM_HEAD_STRIDE);
  always_comb begin
    slices = 32'(Heads);
    for (int i = 1; i <= $clog2(Heads); i++)
      if (csr(dllm_isa_pkg::CSR_BMM_GROUP) == 32'd1 << i) slices = 32'(Heads >> i);
  end

  // ---- Matrix instructions ------------------------------------------------------------------------------------------
  logic m_tile, m_heads, m_vector, m_head_vector, out_tile, out_heads, out_vector, out_head_vector, m_sum, product, out;
  assign m_tile = op == dllm_isa_pkg::OP_M_MM || op == dllm_isa_pkg::OP_M_TMM;
  assign m_heads = op == dllm_isa_pkg::OP_M_BMM || op == dllm_isa_pkg::OP_M_BTMM;
  assign m_vector = op == dllm_isa_pkg::OP_M_MV || op == dllm_isa_pkg::OP_M_TMV;
  assign m_head_vector = op == dllm_isa_pkg::OP_M_BMV || op == dllm_isa_pkg::OP_M_BTMV;
  assign out_tile = op == dllm_isa_pkg::OP_M_MM_WO;
  assign out_heads = op == dllm_isa_pkg::OP_M_BMM_WO;
  assign out_vector = op == dllm_isa_pkg::OP_M_MV_WO;
  assign out_head_vector = op == dllm_isa_pkg::OP_M_BMV_WO;
  assign m_sum = op == dllm_isa_pkg::OP_M_SUM;
  assign product = m_tile || m_heads || m_vector || m_head_vector;
  assign out = out_tile || out_heads || out_vector || out_head_vector;
  assign flush_o = m_sum;
  assign head_rows = m_heads || out_heads ? csr(dllm_isa_pkg::CSR_BMM_ROWS) : 32'd1;
  assign sums_o = m_sum ? 4'hf : {m_head_vector || out_head_vector, m_vector || out_vector, m_heads || out_heads,
                                  m_tile || out_tile};
  // Heads whose lanes are in one row drain together.
  logic [31:0] col_blocks, row_blocks, drains;
  assign col_blocks = (head_cols + 32'(BLEN) - 32'd1) / 32'(BLEN);
  assign row_blocks = (head_rows + 32'(BLEN) - 32'd1) / 32'(BLEN);
  always_comb begin
    drains = 32'(Heads);
    for (int i = 1; i <= Lane; i++)  // 2^i heads beside each other
      if (stride != 32'd0 && (stride << i) <= 32'(VLEN)) drains = i > $clog2(Heads) ? 32'd1 : 32'(Heads >> i);
  end

  // ---- Lengths ------------------------------------------------------------------------------------------------------
  logic [31:0] experts, top, words, elements;
  always_comb begin
    case (rs3)
      4'd0: {experts, top} = {32'd32, 32'd4};
      4'd1: {experts, top} = {32'd128, 32'd8};
      default: {experts, top} = {csr(dllm_isa_pkg::CSR_ROUTER_EXPERTS), csr(dllm_isa_pkg::CSR_ROUTER_TOP)};
    endcase
  end
  assign words = word_i[31] ? b_i : 32'(VLEN);  // S_MAP_V_FP, with a length or without
  assign elements = v_router ? experts : is_map ? words : l_i;
  logic [31:0] levels;
  always_comb begin
    levels = 32'd0;
    for (int i = 1; i <= Lane; i++) if (csr(dllm_isa_pkg::CSR_SEGMENT_LENGTH) == 32'd1 << i) levels = 32'(i);
  end

  // ---- Unit and time ------------------------------------------------------------------------------------------------
  logic vector, scalar;
  assign vector = v_known || is_select;
  assign scalar = is_scalar || is_load_fp || is_store_fp || is_map;
  assign int_o = is_int || is_load_int || is_store_int;
  assign fence_o = op == dllm_isa_pkg::OP_C_FENCE;
  logic load_matrix, load_vector, store;
  assign load_matrix = op == dllm_isa_pkg::OP_H_PREFETCH_M;
  assign load_vector = op == dllm_isa_pkg::OP_H_PREFETCH_V;
  assign store = op == dllm_isa_pkg::OP_H_STORE_V;
  assign unit_o = vector ? UnitVector : scalar ? UnitScalar : product || m_sum ? UnitArray
                  : out ? UnitDrain : load_matrix ? UnitLoadMatrix : load_vector ? UnitLoadVector
                  : store ? UnitStore : UnitFront;
  logic [31:0] latency, streamed, occupies, rows;
  assign streamed = elements == 32'd0 ? 32'd1 : elements;
  always_comb begin
    {latency, occupies, pipe_o, rows} = {32'd1, 32'd1, PipeNone, 32'd0};
    if (v_add) {latency, pipe_o} = {32'(ADD_STAGES), PipeAdd};
    if (v_multiply) {latency, pipe_o} = {32'(MUL_STAGES), PipeMul};
    if (v_exp) {latency, pipe_o} = {32'(EXP_STAGES), PipeExp};
    if (v_root) {latency, pipe_o} = {32'(RECI_STAGES), PipeReci};
    if (v_extreme || v_max || v_index || v_max_seg) {latency, pipe_o} = {32'(MAX_STAGES), PipeMax};
    if (v_sum || v_sum_seg) {latency, pipe_o} = {32'(SUM_STAGES), PipeSum};
    if (v_scan) {latency, pipe_o} = {32'(SCAN_STAGES), PipeScan};
    if (v_shift) pipe_o = PipeShift;
    if (v_hadamard) {latency, pipe_o} = {levels + 32'd1, PipeHadamard};
    if (v_top) {latency, occupies, pipe_o} = {streamed, streamed, PipeTop};
    if (v_router) {latency, occupies, pipe_o} = {experts * 32'(MAX_STAGES), experts * 32'(MAX_STAGES), PipeTop};
    if (is_select) {latency, occupies, pipe_o} = {streamed, streamed, PipeSelect};
    if (v_draw) begin
      occupies = csr(dllm_isa_pkg::CSR_DRAW_PRECISION) == 32'd0 ? 32'(4 * DRAW_CYCLES) : 32'(DRAW_CYCLES);
      {latency, pipe_o} = {32'(DRAW_STAGES - 1) + occupies, PipeDraw};
    end
    if (is_map && elements != 32'd0) {latency, occupies} = {elements << 1, elements << 1};
    if (m_tile || m_vector) {occupies, rows} = {32'(BLEN), m_tile ? mm_rows : 32'd1};
    if (m_heads) {occupies, rows} = {row_blocks * col_blocks * 32'(BLEN), head_rows};
    if (m_head_vector) {occupies, rows} = {op == dllm_isa_pkg::OP_M_BMV ? slices * 32'(HLEN) : head_cols, 32'd1};
    if (product) latency = occupies;
    if (store) rows = csr(dllm_isa_pkg::CSR_STORE_V_ROWS);
    if (out) rows = out_tile ? mm_rows : out_vector ? 32'd1 : head_rows * col_blocks * drains;
  end
  // Sums of times, which the issue stage forms, fit then.
  localparam logic [31:0] Longest = (32'd1 << (TIME - 1)) - 32'd1;
  function automatic logic [TIME-1:0] cut(input logic [31:0] cycles);
    cut = TIME'(cycles > Longest ? Longest : cycles);
  endfunction
  assign latency_o = cut(latency);
  assign occupies_o = cut(occupies);
  assign rows_o = cut(rows);
  assign long_o = latency > Longest || occupies > Longest || rows > Longest;

  // ---- Cells --------------------------------------------------------------------------------------------------------
  function automatic logic [ROWS-1:0] span(input logic [31:0] address, input logic [31:0] count);
    span = ({ROWS{1'b1}} << (address >> Lane)) & ~({ROWS{1'b1}} << ((address >> Lane) + count));
  endfunction
  function automatic logic [TILES-1:0] tile(input logic [31:0] address);
    tile = TILES'(1) << (address >> Tile);
  endfunction
  function automatic logic [FP_CELLS-1:0] fp(input logic [31:0] address, input logic [31:0] count);
    fp = count == 32'd0 ? '0 : ({FP_CELLS{1'b1}} << (address >> 4)) &
                               ~({FP_CELLS{1'b1}} << (((address + count - 32'd1) >> 4) + 32'd1));
  endfunction
  function automatic logic [INT_CELLS-1:0] ints(input logic [31:0] address, input logic [31:0] count);
    ints = count == 32'd0 ? '0 : ({INT_CELLS{1'b1}} << (address >> 4)) &
                                 ~({INT_CELLS{1'b1}} << (((address + count - 32'd1) >> 4) + 32'd1));
  endfunction
  logic [31:0] covered, word_address, result;  // rows of `elements`; addresses with an immediate
  assign covered = (elements + 32'(VLEN) - 32'd1) >> Lane;
  assign word_address = a_i + (!is_map ? {14'b0, word_i[31:14]}
                                       : word_i[31] ? {19'b0, word_i[30:18]} : {15'b0, word_i[30:14]});
  assign result = d_i + {14'b0, word_i[31:14]};

  logic [ROWS-1:0] read_a, read_b, read_c, write_rows;
  logic [TILES-1:0] read_tiles, write_tiles;
  logic [31:0] matrix_end;
  assign matrix_end = d_i + csr(dllm_isa_pkg::CSR_PREFETCH_M_ROWS) * 32'(MLEN) - 32'd1;
  logic [FP_CELLS-1:0] read_fp, write_fp;
  logic [INT_CELLS-1:0] read_int, write_int;
  always_comb begin
    {read_a, read_b, read_c, write_rows} = '0;
    {read_tiles, write_tiles, read_fp, write_fp, read_int, write_int} = '0;
    if (v_row_a) read_a = span(a_i, v_top || v_router ? covered : 32'd1);
    if (v_row_b) read_b = span(b_i, v_top ? covered : 32'd1);
    if (v_row_d) write_rows = span(d_i, v_top ? covered : 32'd1);
    if (v_router) {write_fp, write_int} = {fp(d_i, top), ints(b_i, top)};
    if (is_select) begin
      read_c = span(c_i, covered);
      read_int = ints(a_i, elements) | ints(b_i, elements);
      write_int = ints(d_i, elements);
    end
    if (is_load_fp) read_fp = fp(word_address, 32'd1);
    if (is_store_fp) write_fp = fp(word_address, 32'd1);
    if (is_map) {read_fp, write_rows} = {fp(word_address, words), span(d_i, 32'd1)};
    if (is_load_int) read_int = ints(word_address, 32'd1);
    if (is_store_int) write_int = ints(word_address, 32'd1);
    if (product) begin
      read_a = span(op == dllm_isa_pkg::OP_M_TMM ? a_i : b_i, rows);
      read_tiles = tile(op == dllm_isa_pkg::OP_M_TMM ? b_i : m_head_vector ? a_i + d_i : a_i);
    end
    if (load_matrix)
      write_tiles = ({TILES{1'b1}} << (d_i >> Tile)) & ~({TILES{1'b1}} << ((matrix_end >> Tile) + 32'd1));
    if (load_vector) write_rows = span(d_i, csr(dllm_isa_pkg::CSR_PREFETCH_V_ROWS));
    if (store) read_a = span(d_i, rows);
    if (out_vector) write_rows = span(result, 32'd1);
    if (out_tile)
      for (int i = 0; i < BLEN; i++)
        if (32'(i) < mm_rows)
          write_rows = write_rows | span(result + ((a_i == 32'd0 ? 32'(i) : 32'(i) * a_i) << Lane), 32'd1);
    if (out_heads || out_head_vector)
      for (int i = 0; i < Heads; i++)
        write_rows = write_rows | span(result + 32'(i) * (stride == 32'd0 ? head_rows << Lane : stride), head_rows);
  end
  assign reads_o = {read_int, read_fp, read_tiles, read_a | read_b | read_c};
  assign writes_o = {write_int, write_fp, write_tiles, write_rows};
  assign again_o = read_a & read_b;

  // ---- Registers ----------------------------------------------------------------------------------------------------
  function automatic logic [15:0] one(input logic [3:0] number);
    one = number == 4'd0 ? 16'd0 : 16'd1 << number;  // gp0 is always ready
  endfunction
  function automatic logic [7:0] f(input logic [3:0] number);
    f = number == 4'd0 ? 8'd0 : 8'd1 << number;
  endfunction
  logic with_scalar, index, three, transfer;
  assign transfer = load_matrix || load_vector || store;
  assign with_scalar = (v_add || v_multiply || v_extreme) && !v_row_b;
  assign index = v_index || v_draw;
  assign three = op == dllm_isa_pkg::OP_S_ADD_INT || op == dllm_isa_pkg::OP_S_SUB_INT ||
                 op == dllm_isa_pkg::OP_S_MUL_INT;
  assign accumulates_o = v_sum || v_max || index;
  assign {index_o, ends_loop_o, branch_o} = {index, is_end, is_branch};
  always_comb begin
    {f_reads_o, f_writes_o} = '0;
    if (with_scalar) f_reads_o = f(rs2);
    if (v_sum || v_max) {f_reads_o, f_writes_o} = {f(rd), f(rd)};
    if (index) f_writes_o = f(rs3) | (v_draw ? f(fn) : 8'd0);
    if (index) f_reads_o = f_writes_o;
    if (is_load_fp) f_writes_o = f(rd);
    if (is_store_fp) f_reads_o = f(rd);
    if (is_scalar) begin
      f_writes_o = f(rd);
      if (op != dllm_isa_pkg::OP_S_LI_FP || word_i[31:30] != 2'd0) f_reads_o = f(rs1);
      if (op == dllm_isa_pkg::OP_S_ADD_FP || op == dllm_isa_pkg::OP_S_SUB_FP || op == dllm_isa_pkg::OP_S_MUL_FP ||
          op == dllm_isa_pkg::OP_S_MAX_FP)
        f_reads_o = f(rs1) | f(rs2);
    end
  end
  always_comb begin
    gp_reads_o = 16'd0;
    if (v_row_d || is_select || v_router || is_map || out || m_head_vector || int_o || is_start || is_end ||
        is_branch || transfer)
      gp_reads_o = gp_reads_o | one(rd);
    if (is_setter && op != dllm_isa_pkg::OP_C_SET_ADDR_REG && op != dllm_isa_pkg::OP_C_FENCE)
      gp_reads_o = gp_reads_o | one(rd);
    if (vector || is_load_fp || is_store_fp || is_map || product || out_tile || transfer ||
        op == dllm_isa_pkg::OP_C_SET_ADDR_REG || (int_o && op != dllm_isa_pkg::OP_S_LUI_INT))
      gp_reads_o = gp_reads_o | one(rs1);
    if (v_row_b || v_shift || v_router || index || is_select || product || three ||
        op == dllm_isa_pkg::OP_C_SET_ADDR_REG || (is_map && word_i[31]))
      gp_reads_o = gp_reads_o | one(rs2);
    if (v_top || is_select) gp_reads_o = gp_reads_o | one(rs3) | one(fn);
    if (v_draw) gp_reads_o = gp_reads_o | one(word_i[29:26]);
    gp_writes_o = is_int || is_load_int || index || is_start || is_end ? one(rd) : 16'd0;
  end

  logic unused_bits;
  assign unused_bits = &{is_external, csr_i, c_i};
endmodule
