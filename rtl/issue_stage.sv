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
`include "fault.svh"
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
  input  logic                     clk_i,
  input  logic                     rst_ni,
  // The next words of the program, with their registers rd, rs1, rs2, rs3, funct and the control registers.
  input  logic [WIDTH-1:0]         valid_i,
  input  logic [32*WIDTH-1:0]      word_i,
  input  logic [160*WIDTH-1:0]     registers_i,
  input  logic [32*Csrs*WIDTH-1:0] csr_i,
  input  logic [WIDTH-1:0]         taken_i,     // the branch is taken, the loop goes on
  input  logic [128*WIDTH-1:0]     low_i,       // memory that a transfer touches, elements and scales: from here
  input  logic [128*WIDTH-1:0]     high_i,      // to before this
  // The DMA engines: cells whose data one load more may be read from now on, transfers that are done, by engine in the
  // order of dispatch, and rows that arrive through the ports in this cycle.
  input  logic [Cells-1:0]         landed_i,
  input  logic [3*TRANSFERS-1:0]   finished_i,
  input  logic [2:0]               arriving_i,
  output logic [WIDTH-1:0]         take_o,      // dispatched in this cycle
  output logic [EntryBits*WIDTH-1:0] entry_o,   // where it waits, unless the front end executes it
  // Instructions that the units were told in this cycle to start: how many cycles from now, and when they are done.
  output logic [Entries-1:0]       started_o,
  output logic [TIME*Entries-1:0]  start_o,
  output logic [TIME*Entries-1:0]  done_o,      // of stores: when they are sent
  output logic [Entries-1:0]       chained_o,   // a source comes from a latch
  output logic                     idle_o
);
`include "issue_units.svh"
  `DLLM_CHECK_PARAMETER(g_queue_is_a_power_of_two, QUEUE >= 2 && (QUEUE & (QUEUE - 1)) == 0)
  `DLLM_CHECK_PARAMETER(g_ports_fit_their_count, PORTS >= 1 && PORTS <= 7)
  `DLLM_CHECK_PARAMETER(g_a_tile_is_a_cell, MLEN <= 64)
  localparam int Pipes = 12;
  localparam int History = 8;  // results of a pipe that are known; older ones have left its latch
  localparam int Latches = Pipes * History;
  localparam int Passes = 3;   // over the units in a cycle: a start that releases one that releases one
  localparam int QueueBits = $clog2(QUEUE);
  localparam int CellBits = $clog2(Cells);
  localparam int Sums = 4 * ACCUMULATORS;
  localparam int BufferBits = ACCUMULATORS > 1 ? $clog2(ACCUMULATORS) : 1;
  localparam int Calendar = 4 * HORIZON;  // more than PORTS accesses in a cycle if rows arrive in booked ones
  localparam int TransferBits = TRANSFERS > 1 ? $clog2(TRANSFERS) : 1;
  // What waits: cells, registers, the vector unit's pipe, times, sums with their buffers.
  localparam int Payload = 2 * Cells + ROWS + 8 + 8 + 4 + 4 + 4 + 3 * TIME + 4 * BufferBits + 3;
  localparam logic [TIME-1:0] Never = '1;
  // Fill and drain of the array: skew of rows and columns, the tree, the conversion.
  localparam logic [TIME-1:0] Fill = TIME'(2 * BLEN - 2 + $clog2(MLEN / BLEN) + 2);

  // ---- What the words are -------------------------------------------------------------------------------------------
  logic [2:0] d_unit[WIDTH];
  logic [3:0] d_pipe[WIDTH], d_sums[WIDTH];
  logic [TIME-1:0] d_latency[WIDTH], d_occupies[WIDTH], d_rows[WIDTH];
  logic [Cells-1:0] d_reads[WIDTH], d_writes[WIDTH];
  logic [ROWS-1:0] d_again[WIDTH];
  logic [7:0] d_f_reads[WIDTH], d_f_writes[WIDTH];
  logic [15:0] d_gp_reads[WIDTH], d_gp_writes[WIDTH];
  logic [WIDTH-1:0] d_int, d_accumulates, d_index, d_start, d_end, d_branch, d_flush, d_fence, d_long;
  generate
    for (genvar s = 0; s < WIDTH; s++) begin : g_decode
      issue_decode #(
        .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .ROWS(ROWS), .TILES(TILES), .FP_CELLS(FP_CELLS),
        .INT_CELLS(INT_CELLS), .TIME(TIME), .DRAW_CYCLES(DRAW_CYCLES)
      ) i_decode (
        .word_i(word_i[32*s+:32]), .d_i(registers_i[160*s+:32]), .a_i(registers_i[160*s+32+:32]),
        .b_i(registers_i[160*s+64+:32]), .c_i(registers_i[160*s+96+:32]), .l_i(registers_i[160*s+128+:32]),
        .csr_i(csr_i[32*Csrs*s+:32*Csrs]), .unit_o(d_unit[s]), .int_o(d_int[s]), .pipe_o(d_pipe[s]),
        .latency_o(d_latency[s]), .occupies_o(d_occupies[s]), .rows_o(d_rows[s]), .reads_o(d_reads[s]),
        .again_o(d_again[s]), .writes_o(d_writes[s]), .f_reads_o(d_f_reads[s]), .f_writes_o(d_f_writes[s]),
        .accumulates_o(d_accumulates[s]), .index_o(d_index[s]), .starts_loop_o(d_start[s]), .ends_loop_o(d_end[s]),
        .branch_o(d_branch[s]), .gp_reads_o(d_gp_reads[s]), .gp_writes_o(d_gp_writes[s]), .sums_o(d_sums[s]),
        .flush_o(d_flush[s]), .fence_o(d_fence[s]), .long_o(d_long[s])
      );
    end
  endgenerate

  // ---- State: cycles are counted from now, and 0 is now or earlier; arrays are packed ------------------------------
  // Cells and registers.
  logic [TIME*Cells-1:0] ready_q, ready;      // until the value may be read
  logic [TIME*Cells-1:0] reading_q, reading;  // until it is no longer read
  logic [4*Cells-1:0] filling_q, filling;     // loads that it waits for
  logic [TIME*16-1:0] gp_ready_q, gp_ready;
  logic [8*16-1:0] gp_waits_q, gp_waits;      // vector instructions that will write it and have not started
  logic [15:0] gp_vector_q, gp_vector;        // its last writer is the vector unit
  logic [TIME*8-1:0] f_ready_q, f_ready, f_reading_q, f_reading;
  logic [4*8-1:0] f_pipe_q, f_pipe;           // that wrote it
  // Latches: results of each pipe, the newest first.
  logic [Latches-1:0] latch_valid_q, latch_valid;
  logic [CellBits*Latches-1:0] latch_row_q, latch_row;
  logic [TIME*Latches-1:0] latch_from_q, latch_from, latch_until_q, latch_until;
  // Units.
  logic [TIME*16-1:0] pipe_free_q, pipe_free;
  logic [TIME-1:0] scalar_free_q, scalar_free, array_free_q, array_free, drain_free_q, drain_free, last_start_q,
                   last_start, bubble_q, bubble;
  logic [3:0] starts_q, starts;                  // at last_start
  logic [TIME*Sums-1:0] summed_q, summed;        // until a sum is complete
  logic [TIME*Sums-1:0] drained_q, drained;      // until its buffer has been written out
  logic [3:0] open_q, open;                      // sums that have begun, in the front end's order
  logic [4*BufferBits-1:0] buffer_q, buffer;
  logic [Calendar-1:0] calendar_q, calendar;     // port accesses of each cycle from now on
  // Transfers in flight, and the bytes of stores, for loads that come after them.
  logic [3*TRANSFERS-1:0] flying_q, flying;
  logic [12*TRANSFERS-1:0] tag_q, tag;
  logic [128*TRANSFERS-1:0] low_q, low, high_q, high;
  logic [3*TransferBits-1:0] next_q, next;
  logic [2:0] engine_free;                       // has not started a transfer in this cycle
  // Queues: vector, scalar, matrix, the DMA engines. Array and write-outs share one, and start independently.
  logic [Entries-1:0] waiting_q, waiting;
  logic [TIME*Entries-1:0] hold_q, hold;         // until a start that was scheduled
  logic [6*QueueBits-1:0] tail_q, tail;          // the next to be filled: the oldest one
  logic [Entries*Entries-1:0] after_q, after;    // older ones that must have started
  logic [Payload*Entries-1:0] payload_q, payload;

`include "issue_functions.svh"

  // ---- A cycle ------------------------------------------------------------------------------------------------------
  logic [Cells-1:0] unready, busy, filled, chain;
  logic [Entries-1:0] conflict;
  logic [TIME-1:0] w, done, ends, count;
  logic [EntryBits-1:0] e, place;
  logic [2:0] only, k, queue;
  logic [1:0] engine;
  logic [TransferBits-1:0] slot;
  logic found, go, stopped, int_used, chained_any;
  logic [BufferBits-1:0] which;
  // Of the instruction that a unit may start, or with which a word is compared.
  logic [Cells-1:0] x_reads, x_writes;
  logic [ROWS-1:0] x_again;
  logic [7:0] x_f_reads, x_f_writes;
  logic [3:0] x_pipe, x_sums, x_gp;
  logic [TIME-1:0] x_latency, x_occupies, x_rows;
  logic [4*BufferBits-1:0] x_buffers;
  logic x_accumulates, x_drain, x_first;
  always_comb begin
    {ready, reading, filling, gp_ready, gp_waits, gp_vector} =
        {ready_q, reading_q, filling_q, gp_ready_q, gp_waits_q, gp_vector_q};
    {f_ready, f_reading, f_pipe} = {f_ready_q, f_reading_q, f_pipe_q};
    {latch_valid, latch_row, latch_from, latch_until} = {latch_valid_q, latch_row_q, latch_from_q, latch_until_q};
    {pipe_free, scalar_free, array_free, drain_free} = {pipe_free_q, scalar_free_q, array_free_q, drain_free_q};
    {last_start, bubble, starts, summed} = {last_start_q, bubble_q, starts_q, summed_q};
    {drained, open, buffer, calendar} = {drained_q, open_q, buffer_q, calendar_q};
    {tag, low, high, next} = {tag_q, low_q, high_q, next_q};
    {waiting, hold, tail, after, payload} = {waiting_q, hold_q, tail_q, after_q, payload_q};
    flying = flying_q & ~finished_i;
    calendar[3:0] = calendar[3:0] + {1'b0, arriving_i};
    engine_free = 3'b111;
    for (int c = 0; c < Cells; c++) begin
      filling[4*c+:4] = filling[4*c+:4] - {3'b0, landed_i[c]};
      unready[c] = ready[TIME*c+:TIME] != '0;
      busy[c] = reading[TIME*c+:TIME] != '0;
      filled[c] = filling[4*c+:4] != '0;
    end
    {take_o, entry_o, started_o, start_o, done_o, chained_o} = '0;
    {chain, conflict, w, done, ends, count, e, place, only, found, go, stopped, int_used} = '0;
    {chained_any, queue, which, k, engine, slot} = '0;
    {x_reads, x_writes, x_again, x_f_reads, x_f_writes, x_pipe, x_sums, x_gp} = '0;
    {x_latency, x_occupies, x_rows, x_buffers, x_accumulates, x_drain, x_first} = '0;

    // First the units; then a word is dispatched, and its unit may start it at once; then the next word.
    for (int step = 0; step < Passes + WIDTH; step++) begin
      only = UnitFront;
      for (int s = 0; s < WIDTH; s++)
        if (step == Passes + s) begin
          go = valid_i[s] && !stopped && bubble_q == '0 && (SERIAL == 0 || (s == 0 && idle_o));
          for (int r = 1; r < 16; r++)
            if ((d_gp_reads[s][r] || (d_index[s] && d_gp_writes[s][r] && !gp_vector[r])) &&
                (gp_waits[8*r+:8] != '0 || gp_ready[TIME*r+:TIME] != '0))
              go = 1'b0;
          // Older instructions that wait: a write-out for its sum, a new sum for the write-out of its buffer.
          for (int i = 0; i < Entries; i++) begin
            {x_reads, x_writes, x_again, x_f_reads, x_f_writes, x_pipe, x_sums, x_gp, x_latency, x_occupies, x_rows,
             x_buffers, x_accumulates, x_drain, x_first} = payload[Payload*i+:Payload];
            conflict[i] = (x_writes & (d_reads[s] | d_writes[s])) != '0 || (x_reads & d_writes[s]) != '0 ||
                          (x_f_writes & (d_f_reads[s] | d_f_writes[s])) != '0 || (x_f_reads & d_f_writes[s]) != '0;
            for (int a = 0; a < 4; a++)
              if (x_sums[a] && d_sums[s][a] && !d_flush[s] && x_drain != (d_unit[s] == UnitDrain) &&
                  x_buffers[BufferBits*a+:BufferBits] == buffer[BufferBits*a+:BufferBits])
                conflict[i] = 1'b1;
            if (!waiting[i]) conflict[i] = 1'b0;
          end
          queue = d_unit[s] <= UnitArray ? d_unit[s] - 3'd1 : d_unit[s] - 3'd2;
          engine = 2'(d_unit[s] - UnitLoadMatrix);
          if (d_unit[s] != UnitFront) begin
            e = EntryBits'(QUEUE * 32'(queue)) + EntryBits'(tail[QueueBits*32'(queue)+:QueueBits]);
            slot = next[TransferBits*32'(engine)+:TransferBits];
            if (waiting[e] || hold[TIME*32'(e)+:TIME] != '0) go = 1'b0;
            if (d_unit[s] >= UnitLoadMatrix && flying[TRANSFERS*32'(engine)+32'(slot)]) go = 1'b0;
            if (d_unit[s] != UnitLoadMatrix && d_unit[s] != UnitLoadVector) begin
              if (((d_reads[s] | d_writes[s]) & filled) != '0) go = 1'b0;  // data from memory
            end else begin
              // A load comes after stores to the same bytes.
              for (int i = 0; i < TRANSFERS; i++)
                for (int m = 0; m < 4; m++)
                  if (flying[2*TRANSFERS+i] && low_i[128*s+64*(m/2)+:64] < high[128*i+64*(m%2)+:64] &&
                      low[128*i+64*(m%2)+:64] < high_i[128*s+64*(m/2)+:64])
                    go = 1'b0;
            end
          end else if (d_int[s]) begin
            if (int_used || conflict != '0 || (d_reads[s] & unready) != '0 || (d_writes[s] & busy) != '0) go = 1'b0;
            for (int c = ROWS; c < Cells; c++) if (d_writes[s][c] && ready[TIME*c+:TIME] > TIME'(1)) go = 1'b0;
          end
          for (int i = 0; i < 3 * TRANSFERS; i++)
            if (d_fence[s] && flying[i] && (word_i[32*s+26+:4] == 4'd0 || word_i[32*s+26+:4] == tag[4*i+:4]))
              go = 1'b0;
          stopped = stopped || !go;
          take_o[s] = go;
          if (go && d_unit[s] == UnitFront) begin
            int_used = int_used || d_int[s];
            for (int r = 1; r < 16; r++)
              if (d_gp_writes[s][r]) {gp_ready[TIME*r+:TIME], gp_vector[r]} = {TIME'(1), 1'b0};
            for (int c = ROWS; c < Cells; c++)
              if (d_writes[s][c]) {ready[TIME*c+:TIME], unready[c]} = {TIME'(1), 1'b1};
            if (taken_i[s] && (d_end[s] || d_branch[s])) stopped = 1'b1;
            if (taken_i[s] && d_branch[s]) bubble = TIME'(BUBBLE + 1);
          end else if (go) begin
            only = d_unit[s];
            entry_o[EntryBits*s+:EntryBits] = e;
            waiting[e] = 1'b1;
            tail[QueueBits*32'(queue)+:QueueBits] = tail[QueueBits*32'(queue)+:QueueBits] + 1'b1;
            after[Entries*32'(e)+:Entries] = conflict;
            x_gp = '0;
            for (int r = 1; r < 16; r++)
              if (d_gp_writes[s][r]) begin
                x_gp = 4'(r);
                gp_waits[8*r+:8] = gp_waits[8*r+:8] + 1'b1;
                gp_vector[r] = 1'b1;
              end
            x_drain = d_unit[s] == UnitDrain;
            x_first = !d_flush[s] && (d_sums[s] & ~open) != '0;
            payload[Payload*32'(e)+:Payload] =
                {d_reads[s], d_writes[s], d_again[s], d_f_reads[s], d_f_writes[s], d_pipe[s], d_sums[s], x_gp,
                 d_latency[s], d_occupies[s], d_rows[s], buffer, d_accumulates[s], x_drain, x_first};
            for (int a = 0; a < 4; a++)
              if (d_sums[s][a] && !d_flush[s]) begin
                open[a] = !x_drain;
                if (x_drain)
                  buffer[BufferBits*a+:BufferBits] = 32'(buffer[BufferBits*a+:BufferBits]) == ACCUMULATORS - 1
                      ? '0 : buffer[BufferBits*a+:BufferBits] + 1'b1;
              end
            if (d_unit[s] >= UnitLoadMatrix) begin
              flying[TRANSFERS*32'(engine)+32'(slot)] = 1'b1;
              tag[4*(TRANSFERS*32'(engine)+32'(slot))+:4] = word_i[32*s+26+:4];
              next[TransferBits*32'(engine)+:TransferBits] = 32'(slot) == TRANSFERS - 1 ? '0 : slot + 1'b1;
              if (d_unit[s] == UnitStore) begin
                low[128*32'(slot)+:128] = low_i[128*s+:128];
                high[128*32'(slot)+:128] = high_i[128*s+:128];
              end else begin
                for (int c = 0; c < Cells; c++)
                  if (d_writes[s][c]) {filling[4*c+:4], filled[c]} = {filling[4*c+:4] + 4'd1, 1'b1};
              end
            end
          end
        end

      // The oldest instruction of each unit that has not started.
      for (int u = 1; u <= 7; u++)
        if (step < Passes || only == 3'(u)) begin
          k = 3'(u);
          engine = 2'(k - UnitLoadMatrix);
          queue = k <= UnitArray ? k - 3'd1 : k - 3'd2;
          found = 1'b0;
          e = '0;
          for (int i = 0; i < QUEUE; i++) begin
            place = EntryBits'(QUEUE * 32'(queue)) +
                    EntryBits'(QueueBits'(tail[QueueBits*32'(queue)+:QueueBits] + QueueBits'(i)));
            if (!found && waiting[place] && (queue != 3'd2 || payload[Payload*32'(place)+1] == (k == UnitDrain)))
              {found, e} = {1'b1, place};
          end
          go = found && after[Entries*32'(e)+:Entries] == '0;
          if (go)
            {x_reads, x_writes, x_again, x_f_reads, x_f_writes, x_pipe, x_sums, x_gp, x_latency, x_occupies, x_rows,
             x_buffers, x_accumulates, x_drain, x_first} = payload[Payload*32'(e)+:Payload];
          w = '0;
          chain = '0;
          if (go && k == UnitVector) begin
            for (int i = 0; i < Latches; i++)
              if (CHAINING != 0 && latch_valid[i] && latch_from[TIME*i+:TIME] == '0 &&
                  latch_until[TIME*i+:TIME] != '0)
                chain[latch_row[CellBits*i+:CellBits]] = 1'b1;
            if (last_start != '0 || starts >= 4'(STARTS) || pipe_free[TIME*32'(x_pipe)+:TIME] != '0) go = 1'b0;
          end
          if ((k == UnitScalar && scalar_free != '0) || (k == UnitArray && array_free != '0)) go = 1'b0;
          if (k == UnitDrain && drain_free != '0) go = 1'b0;
          if (k >= UnitLoadMatrix && !engine_free[engine]) go = 1'b0;
          if ((x_reads & unready & ~chain) != '0 || (x_writes & busy) != '0) go = 1'b0;
          // A result may not come before the one that it replaces.
          count = k == UnitDrain ? TIME'(1) : k >= UnitLoadMatrix ? '0 : x_latency;
          if (go && (x_writes & unready) != '0)
            for (int c = 0; c < Cells; c++) if (x_writes[c] && ready[TIME*c+:TIME] > count) go = 1'b0;
          for (int r = 1; r < 8; r++)
            if (x_accumulates && x_f_writes[r]) begin
              // Added to in the last stage: of the same pipe in order, of another one then.
              if (f_pipe[4*r+:4] != x_pipe &&
                  (f_ready[TIME*r+:TIME] > x_latency - 1'b1 || f_reading[TIME*r+:TIME] != '0))
                go = 1'b0;
            end else begin
              if (x_f_reads[r] && f_ready[TIME*r+:TIME] != '0) go = 1'b0;
              if (x_f_writes[r] && (f_reading[TIME*r+:TIME] != '0 || f_ready[TIME*r+:TIME] > x_latency)) go = 1'b0;
            end
          for (int a = 0; a < 4; a++) begin
            which = x_buffers[BufferBits*a+:BufferBits];
            if (k == UnitArray && x_first && x_sums[a] && drained[TIME*(ACCUMULATORS*a+32'(which))+:TIME] > Fill)
              go = 1'b0;
            if (k == UnitDrain && x_sums[a] && summed[TIME*(ACCUMULATORS*a+32'(which))+:TIME] != '0) go = 1'b0;
          end

          if (go) begin
            waiting[e] = 1'b0;
            for (int i = 0; i < Entries; i++) after[Entries*i+32'(e)] = 1'b0;
            done = x_latency;
            ends = '0;  // of its reads
            count = '0;
            chained_any = 1'b0;
            case (k)
              UnitVector: begin
                // Rows that no latch has are read through ports; the instruction starts when it has all of them.
                for (int c = 0; c < ROWS; c++) begin
                  if (x_reads[c] && !chain[c] && count < TIME'(History)) count = count + 1'b1;
                  if (x_again[c] && !chain[c] && count < TIME'(History)) count = count + 1'b1;
                  if (x_reads[c] && chain[c]) chained_any = 1'b1;
                end
                if (count != '0) {w, calendar} = reserve(calendar, '0, count, 1'b0);
                starts = w == '0 ? starts + 1'b1 : 4'd1;
                last_start = w;
                hold[TIME*32'(e)+:TIME] = w;
                pipe_free[TIME*32'(x_pipe)+:TIME] = w + x_occupies;
                done = w + x_latency;
                ends = w + (x_occupies > TIME'(1) ? x_occupies : '0);
                if (x_gp != '0) begin
                  gp_ready[TIME*32'(x_gp)+:TIME] = done;
                  gp_waits[8*32'(x_gp)+:8] = gp_waits[8*32'(x_gp)+:8] - 1'b1;
                end
              end
              UnitScalar: begin
                scalar_free = x_occupies;
                ends = x_occupies - 1'b1;
                if (x_writes[ROWS-1:0] != '0) begin
                  {done, calendar} = reserve(calendar, done, TIME'(1), 1'b1);
                  done = done + 1'b1;
                end
              end
              UnitArray: begin
                // The rows of the vector operand enter one per cycle.
                if (x_rows != '0)
                  {count, calendar} = reserve(calendar, '0, x_rows < x_occupies ? x_rows : x_occupies, 1'b1);
                ends = later(x_occupies - 1'b1, count);
                done = ends + 1'b1;
                array_free = done;
              end
              UnitDrain: begin
                {done, calendar} = reserve(calendar, '0, x_rows, 1'b1);
                done = done + 1'b1;
                drain_free = done;
              end
              default: begin  // a transfer; a store is sent when its rows have been read
                engine_free[engine] = 1'b0;
                if (k == UnitStore) begin
                  {ends, calendar} = reserve(calendar, '0, x_rows, 1'b1);
                  done = ends + 1'b1;
                end
              end
            endcase
            for (int a = 0; a < 4; a++) begin
              which = x_buffers[BufferBits*a+:BufferBits];
              if (k == UnitArray && x_sums[a]) summed[TIME*(ACCUMULATORS*a+32'(which))+:TIME] = done + Fill;
              if (k == UnitDrain && x_sums[a]) drained[TIME*(ACCUMULATORS*a+32'(which))+:TIME] = done;
            end
            started_o[e] = 1'b1;
            start_o[TIME*32'(e)+:TIME] = w;
            chained_o[e] = chained_any;
            // f registers.
            for (int r = 1; r < 8; r++) begin
              if (x_f_reads[r]) f_reading[TIME*r+:TIME] = later(f_reading[TIME*r+:TIME], w);
              if (x_f_writes[r])
                {f_ready[TIME*r+:TIME], f_pipe[4*r+:4]} = {done, k == UnitVector ? x_pipe : PipeNone};
            end
            // Cells, and latches whose row changes.
            count = done;
            for (int c = 0; c < Cells; c++) begin
              if (x_reads[c]) begin
                reading[TIME*c+:TIME] = later(reading[TIME*c+:TIME], ends);
                busy[c] = reading[TIME*c+:TIME] != '0;
              end
              if (x_writes[c]) begin
                if (k < UnitLoadMatrix) ready[TIME*c+:TIME] = done;
                for (int i = 0; i < Latches; i++)
                  if (latch_row[CellBits*i+:CellBits] == CellBits'(c)) latch_valid[i] = 1'b0;
                if (k == UnitVector && c < ROWS) begin
                  {ready[TIME*c+:TIME], calendar} = reserve(calendar, done, TIME'(1), 1'b1);
                  ready[TIME*c+:TIME] = ready[TIME*c+:TIME] + 1'b1;
                  count = later(count, ready[TIME*c+:TIME]);
                  for (int p = 0; p < Pipes; p++)
                    if (32'(x_pipe) == p) begin
                      latch_until[TIME*History*p+:TIME] = done;
                      latch_valid[History*p+:History] = {latch_valid[History*p+:History-1], 1'b1};
                      latch_row[CellBits*History*p+:CellBits*History] =
                          {latch_row[CellBits*History*p+:CellBits*(History-1)], CellBits'(c)};
                      latch_from[TIME*History*p+:TIME*History] = {latch_from[TIME*History*p+:TIME*(History-1)], done};
                      latch_until[TIME*History*p+:TIME*History] =
                          {latch_until[TIME*History*p+:TIME*(History-1)], Never};
                    end
                end
                unready[c] = ready[TIME*c+:TIME] != '0;
              end
            end
            done_o[TIME*32'(e)+:TIME] = count;  // a row is done when it is in the SRAM
          end
        end
    end
  end

  // ---- The next cycle -----------------------------------------------------------------------------------------------
  logic [TIME*Cells-1:0] ready_d, reading_d;
  logic [TIME*16-1:0] gp_ready_d, pipe_free_d;
  logic [TIME*8-1:0] f_ready_d, f_reading_d;
  logic [TIME*Latches-1:0] latch_from_d, latch_until_d;
  logic [TIME*Sums-1:0] summed_d, drained_d;
  logic [TIME*Entries-1:0] hold_d;
  always_comb begin
    for (int i = 0; i < Cells; i++)
      {ready_d[TIME*i+:TIME], reading_d[TIME*i+:TIME]} = {less(ready[TIME*i+:TIME]), less(reading[TIME*i+:TIME])};
    for (int i = 0; i < 16; i++)
      {gp_ready_d[TIME*i+:TIME], pipe_free_d[TIME*i+:TIME]} =
          {less(gp_ready[TIME*i+:TIME]), less(pipe_free[TIME*i+:TIME])};
    for (int i = 0; i < 8; i++)
      {f_ready_d[TIME*i+:TIME], f_reading_d[TIME*i+:TIME]} =
          {less(f_ready[TIME*i+:TIME]), less(f_reading[TIME*i+:TIME])};
    for (int i = 0; i < Latches; i++) begin
      latch_from_d[TIME*i+:TIME] = less(latch_from[TIME*i+:TIME]);
      latch_until_d[TIME*i+:TIME] = latch_until[TIME*i+:TIME] == Never ? Never : less(latch_until[TIME*i+:TIME]);
    end
    for (int i = 0; i < Sums; i++)
      {summed_d[TIME*i+:TIME], drained_d[TIME*i+:TIME]} = {less(summed[TIME*i+:TIME]), less(drained[TIME*i+:TIME])};
    for (int i = 0; i < Entries; i++) hold_d[TIME*i+:TIME] = less(hold[TIME*i+:TIME]);
  end
  assign idle_o = {ready_q, reading_q, gp_ready_q, f_ready_q, summed_q, drained_q, waiting_q, flying_q, array_free_q,
                   drain_free_q, scalar_free_q} == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {ready_q, reading_q, filling_q, gp_ready_q, gp_waits_q, gp_vector_q, f_ready_q, f_reading_q} <= '0;
      f_pipe_q <= {8{PipeNone}};
      {latch_valid_q, latch_row_q, latch_from_q, latch_until_q, pipe_free_q, scalar_free_q, array_free_q} <= '0;
      {drain_free_q, last_start_q, bubble_q, starts_q, summed_q, drained_q, open_q, buffer_q, calendar_q} <= '0;
      {flying_q, tag_q, low_q, high_q, next_q, waiting_q, hold_q, tail_q, after_q} <= '0;
    end else begin
      {ready_q, reading_q, filling_q, gp_ready_q, gp_waits_q, gp_vector_q} <=
          {ready_d, reading_d, filling, gp_ready_d, gp_waits, gp_vector};
      {f_ready_q, f_reading_q, f_pipe_q, latch_valid_q, latch_row_q} <=
          {f_ready_d, f_reading_d, f_pipe, latch_valid, latch_row};
      {latch_from_q, latch_until_q, pipe_free_q} <= {latch_from_d, latch_until_d, pipe_free_d};
      {scalar_free_q, array_free_q, drain_free_q} <= {less(scalar_free), less(array_free), less(drain_free)};
      {last_start_q, bubble_q, starts_q} <= {less(last_start), less(bubble), last_start == '0 ? 4'd0 : starts};
      {summed_q, drained_q, open_q, buffer_q} <= {summed_d, drained_d, open, buffer};
      {flying_q, tag_q, low_q, high_q, next_q} <= {flying, tag, low, high, next};
      calendar_q <= {4'b0, calendar[Calendar-1:4]};
      {waiting_q, hold_q, tail_q, after_q} <= {waiting, hold_d, tail, after};
    end
  end
  always_ff @(posedge clk_i) payload_q <= payload;

  `DLLM_ASSERT(a_ports_are_reserved_within_the_horizon, calendar[Calendar-1-:4] == 4'd0)
  `DLLM_ASSERT(a_times_fit_their_bits, (take_o & d_long) == '0)

  logic unused_start;
  assign unused_start = &d_start;
endmodule
