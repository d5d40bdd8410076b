// Overlapped issue as the cycle simulator defines it (src/npu_core/timing): up to WIDTH instructions per cycle are
// dispatched in order. Integer and control instructions execute there; the others wait in the queue of their unit,
// which starts them in order, the vector unit up to STARTS per cycle on different pipes.
//
// What an instruction waits for has two parts. Older instructions that have not started: those that touch a cell or a
// register of it are a row of bits, captured at dispatch, of which a start clears its column. Instructions that have
// started: a cell counts the cycles until its value may be read, and those in which it is still being read.
//
// One cycle decides in program order, so that a start may release another one in the same cycle. That is one long chain
// of logic, made to follow the definition, not to be fast; docs/design/rtl.md names what differs from it.
`include "assert.svh"
module issue_stage #(
  parameter int VLEN = 8,
  parameter int MLEN = 8,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int ROWS = 8,
  parameter int TILES = 1,
  parameter int FP_CELLS = 2,
  parameter int INT_CELLS = 2,
  parameter int WIDTH = 2,
  parameter int QUEUE = 4,         // instructions that wait for a unit, a power of two
  parameter int STARTS = 2,        // vector instructions that start per cycle
  parameter int CHAINING = 1,      // a pipe's newest result is read from its output latch
  parameter int PORTS = 2,         // row accesses of vector SRAM per cycle, up to 7
  parameter int ACCUMULATORS = 2,  // results of the array that may wait for their write-out
  parameter int BUBBLE = 2,        // cycles lost by a taken branch
  parameter int TRANSFERS = 2,     // in flight per DMA engine: matrix loads, vector loads, stores
  parameter int SERIAL = 0,        // 1: one instruction at a time, until nothing is in flight
  parameter int HORIZON = 16,      // cycles ahead for which ports are reserved
  parameter int TIME = 12,
  parameter int DRAW_CYCLES = 8,
  localparam int Cells = ROWS + TILES + FP_CELLS + INT_CELLS,
  localparam int Entries = 6 * QUEUE,
  localparam int EntryBits = $clog2(Entries),
  localparam int Csrs = 27
) (
  input  logic                               clk_i,
  input  logic                               rst_ni,
  // The next words of the program, with their registers rd, rs1, rs2, rs3, funct and the control registers.
  input  logic [WIDTH-1:0]                   valid_i,
  input  logic [WIDTH-1:0][31:0]             word_i,
  input  logic [WIDTH-1:0][4:0][31:0]        registers_i,
  input  logic [WIDTH-1:0][32*Csrs-1:0]      csr_i,
  input  logic [WIDTH-1:0]                   taken_i,     // the branch is taken, the loop goes on
  input  logic [WIDTH-1:0][1:0][63:0]        low_i,       // memory that a transfer touches, elements and scales: from
  input  logic [WIDTH-1:0][1:0][63:0]        high_i,      // here to before this
  // The DMA engines: cells whose data one load more may be read from now on, transfers that are done, by engine in the
  // order of dispatch, and rows that arrive through the ports in this cycle.
  input  logic [Cells-1:0]                   landed_i,
  input  logic [2:0][TRANSFERS-1:0]          finished_i,
  input  logic [2:0]                         arriving_i,
  output logic [WIDTH-1:0]                   take_o,      // dispatched in this cycle
  output logic [WIDTH-1:0][EntryBits-1:0]    entry_o,     // where it waits, unless the front end executes it
  // Instructions that the units were told in this cycle to start: how many cycles from now, and when they are done.
  output logic [Entries-1:0]                 started_o,
  output logic [Entries-1:0][TIME-1:0]       start_o,
  output logic [Entries-1:0][TIME-1:0]       done_o,      // of stores: when they are sent
  output logic [Entries-1:0]                 chained_o,   // a source comes from a latch
  output logic                               idle_o
);
`include "issue_units.svh"
  `DLLM_CHECK_PARAMETER(g_queue_is_a_power_of_two, QUEUE >= 2 && (QUEUE & (QUEUE - 1)) == 0)
  `DLLM_CHECK_PARAMETER(g_ports_fit_their_count, PORTS >= 1 && PORTS <= 7)
  `DLLM_CHECK_PARAMETER(g_a_tile_is_a_cell, MLEN <= 64)
  localparam int Pipes = 12;
  localparam int History = 8;  // results of a pipe that are known; older ones have left its latch
  localparam int Passes = 3;   // over the units in a cycle: a start that releases one that releases one
  localparam int QueueBits = $clog2(QUEUE);
  localparam int CellBits = $clog2(Cells);
  localparam int BufferBits = ACCUMULATORS > 1 ? $clog2(ACCUMULATORS) : 1;
  localparam int TransferBits = TRANSFERS > 1 ? $clog2(TRANSFERS) : 1;
  localparam logic [TIME-1:0] Never = '1;
  // Fill and drain of the array: skew of rows and columns, the tree, the conversion.
  localparam logic [TIME-1:0] Fill = TIME'(2 * BLEN - 2 + $clog2(MLEN / BLEN) + 2);
`include "issue_types.svh"

  // ---- What the words are -------------------------------------------------------------------------------------------
  word_t words[WIDTH];
  logic [WIDTH-1:0] too_long;
  generate
    for (genvar s = 0; s < WIDTH; s++) begin : g_decode
      issue_decode #(
        .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .ROWS(ROWS), .TILES(TILES), .FP_CELLS(FP_CELLS),
        .INT_CELLS(INT_CELLS), .TIME(TIME), .DRAW_CYCLES(DRAW_CYCLES)
      ) i_decode (
        .word_i(word_i[s]), .d_i(registers_i[s][0]), .a_i(registers_i[s][1]), .b_i(registers_i[s][2]),
        .c_i(registers_i[s][3]), .l_i(registers_i[s][4]), .csr_i(csr_i[s]),
        .unit_o(words[s].operation.unit), .pipe_o(words[s].operation.pipe),
        .latency_o(words[s].operation.latency), .occupies_o(words[s].operation.occupies),
        .rows_o(words[s].operation.rows), .reads_o(words[s].operation.reads), .again_o(words[s].operation.again),
        .writes_o(words[s].operation.writes), .f_reads_o(words[s].operation.f_reads),
        .f_writes_o(words[s].operation.f_writes), .accumulates_o(words[s].operation.accumulates),
        .sums_o(words[s].operation.sums), .int_o(words[s].is_int), .index_o(words[s].index),
        .ends_loop_o(words[s].ends_loop), .branch_o(words[s].branch), .gp_reads_o(words[s].gp_reads),
        .gp_writes_o(words[s].gp_writes), .flush_o(words[s].flush), .fence_o(words[s].fence), .long_o(too_long[s])
      );
      assign words[s].valid = valid_i[s];
      assign words[s].taken = taken_i[s];
      assign words[s].tag = word_i[s][29:26];
      assign words[s].low = low_i[s];
      assign words[s].high = high_i[s];
    end
  endgenerate

  // ---- A cycle ------------------------------------------------------------------------------------------------------
  state_t state_q, now, next;
  entry_t [Entries-1:0] queued_q, queued;
  logic int_used, stopped;   // the integer unit executes; nothing more is dispatched
  logic [2:0] engine_free;   // has not started a transfer
  logic [7:1] tried;         // units that may start an instruction

`include "issue_functions.svh"
`include "issue_dispatch.svh"
`include "issue_start.svh"

  always_comb begin
    now = state_q;
    queued = queued_q;
    {take_o, entry_o, started_o, start_o, done_o, chained_o, int_used, stopped} = '0;
    engine_free = '1;
    now.flying = now.flying & ~finished_i;
    now.calendar[0] = now.calendar[0] + {1'b0, arriving_i};
    for (int c = 0; c < Cells; c++) now.filling[c] = now.filling[c] - {3'b0, landed_i[c]};

    // First the units; then a word is dispatched, and its unit may start it at once; then the next word.
    for (int step = 0; step < Passes + WIDTH; step++) begin
      tried = '1;
      if (step >= Passes) tried = dispatch(step - Passes);
      for (int unit = 1; unit <= 7; unit++) if (tried[unit]) start(3'(unit));
    end
  end

  // ---- The next cycle -----------------------------------------------------------------------------------------------
  always_comb begin
    next = now;
    for (int i = 0; i < Cells; i++) {next.ready[i], next.reading[i]} = {less(now.ready[i]), less(now.reading[i])};
    for (int i = 0; i < 16; i++) next.gp_ready[i] = less(now.gp_ready[i]);
    for (int i = 0; i < 8; i++) {next.f_ready[i], next.f_reading[i]} = {less(now.f_ready[i]), less(now.f_reading[i])};
    for (int p = 0; p < Pipes; p++) begin
      next.pipe_free[p] = less(now.pipe_free[p]);
      for (int i = 0; i < History; i++) begin
        next.latches[p][i].begins = less(now.latches[p][i].begins);
        if (now.latches[p][i].ends != Never) next.latches[p][i].ends = less(now.latches[p][i].ends);
      end
    end
    next.scalar_free = less(now.scalar_free);
    next.array_free = less(now.array_free);
    next.drain_free = less(now.drain_free);
    next.last_start = less(now.last_start);
    next.bubble = less(now.bubble);
    if (now.last_start == '0) next.starts = '0;
    for (int a = 0; a < 4; a++)
      for (int i = 0; i < ACCUMULATORS; i++)
        {next.summed[a][i], next.drained[a][i]} = {less(now.summed[a][i]), less(now.drained[a][i])};
    next.calendar = {4'd0, now.calendar[HORIZON-1:1]};
    for (int i = 0; i < Entries; i++) next.hold[i] = less(now.hold[i]);
  end
  assign idle_o = {state_q.ready, state_q.reading, state_q.gp_ready, state_q.f_ready, state_q.summed, state_q.drained,
                   state_q.waiting, state_q.flying, state_q.array_free, state_q.drain_free, state_q.scalar_free} == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= '0;
      state_q.f_pipe <= {8{PipeNone}};
    end else begin
      state_q <= next;
    end
  end
  always_ff @(posedge clk_i) queued_q <= queued;

  `DLLM_ASSERT(a_ports_are_reserved_within_the_horizon, now.calendar[HORIZON-1] == 4'd0)
  `DLLM_ASSERT(a_times_fit_their_bits, (take_o & too_long) == '0)
endmodule
