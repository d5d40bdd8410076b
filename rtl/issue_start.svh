// Of the issue stage: whether a unit may start an instruction in this cycle, and what that changes.

// The oldest instruction of a unit that has not started, and whether there is one.
function automatic logic [EntryBits:0] oldest(input logic [2:0] unit);
  logic [2:0] queue;
  place_t place;
  queue = queue_of(unit);
  oldest = '0;
  for (int i = QUEUE - 1; i >= 0; i--) begin
    place = {queue, now.tail[queue] + QueueBits'(i)};
    if (now.waiting[place] && queued[place].operation.unit == unit) oldest = {1'b1, place};
  end
endfunction

// Rows that can be read from a latch now.
function automatic cells_t latched();
  latch_t latch;
  latched = '0;
  for (int p = 0; p < Pipes; p++)
    for (int i = 0; i < History; i++) begin
      latch = now.latches[p][i];
      if (CHAINING != 0 && latch.valid && latch.begins == '0 && latch.ends != '0) latched[latch.row] = 1'b1;
    end
endfunction

function automatic logic unit_is_free(input operation_t x);
  case (x.unit)
    UnitVector: unit_is_free = now.last_start == '0 && now.starts < 4'(STARTS) && now.pipe_free[x.pipe] == '0;
    UnitScalar: unit_is_free = now.scalar_free == '0;
    UnitArray: unit_is_free = now.array_free == '0;
    UnitDrain: unit_is_free = now.drain_free == '0;
    default: unit_is_free = engine_free[engine_of(x.unit)];
  endcase
endfunction

// Sources are there, nothing reads what it writes, and its result does not come before the one that it replaces.
function automatic logic cells_are_ready(input operation_t x, input cells_t chain);
  cycles_t first;  // cycle of a result
  first = x.unit == UnitDrain ? TIME'(1) : x.unit >= UnitLoadMatrix ? '0 : x.latency;
  cells_are_ready = 1'b1;
  for (int c = 0; c < Cells; c++)
    if ((x.reads[c] && !chain[c] && now.ready[c] != '0) ||
        (x.writes[c] && (now.reading[c] != '0 || now.ready[c] > first)))
      cells_are_ready = 1'b0;
endfunction
function automatic logic f_registers_are_ready(input operation_t x);
  f_registers_are_ready = 1'b1;
  for (int r = 1; r < 8; r++)
    if (x.accumulates && x.f_writes[r]) begin
      // Added to in the last stage: of the same pipe in order, of another one then.
      if (now.f_pipe[r] != x.pipe && (now.f_ready[r] > x.latency - 1'b1 || now.f_reading[r] != '0))
        f_registers_are_ready = 1'b0;
    end else begin
      if (x.f_reads[r] && now.f_ready[r] != '0) f_registers_are_ready = 1'b0;
      if (x.f_writes[r] && (now.f_reading[r] != '0 || now.f_ready[r] > x.latency)) f_registers_are_ready = 1'b0;
    end
endfunction
function automatic logic sums_are_ready(input entry_t entry);
  operation_t x;
  x = entry.operation;
  sums_are_ready = 1'b1;
  for (int a = 0; a < 4; a++) begin
    if (x.unit == UnitArray && entry.first && x.sums[a] && now.drained[a][entry.buffers[a]] > Fill)
      sums_are_ready = 1'b0;
    if (x.unit == UnitDrain && x.sums[a] && now.summed[a][entry.buffers[a]] != '0) sums_are_ready = 1'b0;
  end
endfunction

// Rows that no latch has are read through ports.
function automatic cycles_t port_reads(input operation_t x, input cells_t chain);
  port_reads = '0;
  for (int c = 0; c < ROWS; c++) begin
    if (x.reads[c] && !chain[c] && port_reads < TIME'(History)) port_reads = port_reads + 1'b1;
    if (x.again[c] && !chain[c] && port_reads < TIME'(History)) port_reads = port_reads + 1'b1;
  end
endfunction

// Takes the unit and the ports.
function automatic times_t occupy(input operation_t x, input cells_t chain);
  times_t t;
  t = '{start: '0, done: x.latency, ends: '0};
  case (x.unit)
    UnitVector: begin
      t.start = reserve('0, port_reads(x, chain), 1'b0);  // when it has all of its rows
      t.done = t.start + x.latency;
      t.ends = t.start + (x.occupies > TIME'(1) ? x.occupies : '0);
      now.starts = t.start == '0 ? now.starts + 1'b1 : 4'd1;
      now.last_start = t.start;
      now.pipe_free[x.pipe] = t.start + x.occupies;
    end
    UnitScalar: begin
      t.ends = x.occupies - 1'b1;
      if (x.writes[ROWS-1:0] != '0) t.done = reserve(t.done, TIME'(1), 1'b1) + 1'b1;
      now.scalar_free = x.occupies;
    end
    UnitArray: begin
      // The rows of the vector operand enter one per cycle.
      t.ends = later(x.occupies - 1'b1, reserve('0, x.rows < x.occupies ? x.rows : x.occupies, 1'b1));
      t.done = t.ends + 1'b1;
      now.array_free = t.done;
    end
    UnitDrain: begin
      t.done = reserve('0, x.rows, 1'b1) + 1'b1;
      now.drain_free = t.done;
    end
    default: begin  // a transfer; a store is sent when its rows have been read
      engine_free[engine_of(x.unit)] = 1'b0;
      if (x.unit == UnitStore) begin
        t.ends = reserve('0, x.rows, 1'b1);
        t.done = t.ends + 1'b1;
      end
    end
  endcase
  occupy = t;
endfunction

function automatic void leave_queue(input place_t place, input cycles_t cycle);
  now.waiting[place] = 1'b0;
  now.hold[place] = cycle;
  for (int i = 0; i < Entries; i++) now.after[i][place] = 1'b0;
endfunction

function automatic void use_registers(input entry_t entry, input times_t t);
  operation_t x;
  x = entry.operation;
  if (entry.gp != '0) begin
    now.gp_ready[entry.gp] = t.done;
    now.gp_waits[entry.gp] = now.gp_waits[entry.gp] - 1'b1;
  end
  for (int r = 1; r < 8; r++) begin
    if (x.f_reads[r]) now.f_reading[r] = later(now.f_reading[r], t.start);
    if (x.f_writes[r]) {now.f_ready[r], now.f_pipe[r]} = {t.done, x.unit == UnitVector ? x.pipe : PipeNone};
  end
  for (int a = 0; a < 4; a++) begin
    if (x.unit == UnitArray && x.sums[a]) now.summed[a][entry.buffers[a]] = t.done + Fill;
    if (x.unit == UnitDrain && x.sums[a]) now.drained[a][entry.buffers[a]] = t.done;
  end
endfunction

// The result of a pipe goes into its latch, and through a port into its row. Returns when it may be read there.
function automatic cycles_t write_row(input logic [3:0] pipe, input logic [CellBits-1:0] row, input cycles_t done);
  now.latches[pipe][0].ends = done;
  now.latches[pipe] = {now.latches[pipe][History-2:0], latch_t'{valid: 1'b1, row: row, begins: done, ends: Never}};
  write_row = reserve(done, TIME'(1), 1'b1) + 1'b1;
endfunction

// Returns when the last result is in its memory.
function automatic cycles_t use_cells(input operation_t x, input times_t t);
  use_cells = t.done;
  for (int c = 0; c < Cells; c++) begin
    if (x.reads[c]) now.reading[c] = later(now.reading[c], t.ends);
    if (x.writes[c]) begin
      for (int p = 0; p < Pipes; p++)
        for (int i = 0; i < History; i++)
          if (now.latches[p][i].row == CellBits'(c)) now.latches[p][i].valid = 1'b0;
      if (x.unit == UnitVector && c < ROWS) now.ready[c] = write_row(x.pipe, CellBits'(c), t.done);
      else if (x.unit < UnitLoadMatrix) now.ready[c] = t.done;
      use_cells = later(use_cells, now.ready[c]);
    end
  end
endfunction

// Starts the oldest instruction of a unit, if nothing is in its way.
function automatic void start(input logic [2:0] unit);
  logic found;
  place_t place;
  entry_t entry;
  operation_t x;
  cells_t chain;
  times_t t;
  {found, place} = oldest(unit);
  if (found && now.after[place] == '0) begin
    entry = queued[place];
    x = entry.operation;
    chain = '0;
    if (unit == UnitVector) chain = latched();
    if (unit_is_free(x) && cells_are_ready(x, chain) && f_registers_are_ready(x) && sums_are_ready(entry)) begin
      t = occupy(x, chain);
      leave_queue(place, t.start);
      use_registers(entry, t);
      started_o[place] = 1'b1;
      start_o[place] = t.start;
      chained_o[place] = (x.reads & chain) != '0;
      done_o[place] = use_cells(x, t);
    end
  end
endfunction
