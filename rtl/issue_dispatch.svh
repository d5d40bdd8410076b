// Of the issue stage: whether a word may be dispatched in this cycle, and what that changes.

// Older instructions that wait and must start first: they share a cell or a register with it; a write-out waits for its
// sum, a new sum for the write-out of its buffer.
function automatic places_t blockers(input word_t word);
  operation_t new_one, old_one;
  new_one = word.operation;
  for (int i = 0; i < Entries; i++) begin
    old_one = queued[i].operation;
    blockers[i] = (old_one.writes & (new_one.reads | new_one.writes)) != '0 ||
                  (old_one.reads & new_one.writes) != '0 ||
                  (old_one.f_writes & (new_one.f_reads | new_one.f_writes)) != '0 ||
                  (old_one.f_reads & new_one.f_writes) != '0;
    for (int a = 0; a < 4; a++)
      if (old_one.sums[a] && new_one.sums[a] && !word.flush && old_one.unit != new_one.unit &&
          queued[i].buffers[a] == now.buffers[a])
        blockers[i] = 1'b1;
    if (!now.waiting[i]) blockers[i] = 1'b0;
  end
endfunction

function automatic logic registers_are_ready(input word_t word);
  registers_are_ready = 1'b1;
  for (int r = 1; r < 16; r++)
    if ((word.gp_reads[r] || (word.index && word.gp_writes[r] && !now.gp_vector[r])) &&
        (now.gp_waits[r] != '0 || now.gp_ready[r] != '0))
      registers_are_ready = 1'b0;
endfunction

// The integer unit, and cells of an integer instruction: it executes at once.
function automatic logic front_end_is_ready(input word_t word, input places_t older);
  front_end_is_ready = 1'b1;
  if (word.is_int && (int_used || older != '0)) front_end_is_ready = 1'b0;
  for (int c = 0; c < Cells; c++)
    if (word.is_int && ((word.operation.reads[c] && now.ready[c] != '0) ||
                        (word.operation.writes[c] && (now.reading[c] != '0 || now.ready[c] > TIME'(1)))))
      front_end_is_ready = 1'b0;
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < TRANSFERS; i++)
      if (word.fence && now.flying[k][i] && (word.tag == 4'd0 || word.tag == now.tag[k][i]))
        front_end_is_ready = 1'b0;
endfunction

// A place in the queue, a descriptor of the DMA engine, and memory.
function automatic logic queue_is_ready(input word_t word, input place_t place);
  operation_t x;
  logic [1:0] engine;
  x = word.operation;
  engine = engine_of(x.unit);
  queue_is_ready = !now.waiting[place] && now.hold[place] == '0;
  if (x.unit >= UnitLoadMatrix && now.flying[engine][now.next[engine]]) queue_is_ready = 1'b0;
  if (x.unit == UnitLoadMatrix || x.unit == UnitLoadVector) begin
    // A load comes after stores to the same bytes.
    for (int i = 0; i < TRANSFERS; i++)
      for (int m = 0; m < 2; m++)
        for (int n = 0; n < 2; n++)
          if (now.flying[2][i] && word.low[m] < now.high[i][n] && now.low[i][n] < word.high[m]) queue_is_ready = 1'b0;
  end else begin
    for (int c = 0; c < Cells; c++)
      if ((x.reads[c] || x.writes[c]) && now.filling[c] != '0) queue_is_ready = 1'b0;
  end
endfunction

function automatic void execute(input word_t word);
  int_used = int_used || word.is_int;
  for (int r = 1; r < 16; r++)
    if (word.gp_writes[r]) {now.gp_ready[r], now.gp_vector[r]} = {TIME'(1), 1'b0};
  for (int c = ROWS; c < Cells; c++)
    if (word.operation.writes[c]) now.ready[c] = TIME'(1);
  if (word.taken && (word.ends_loop || word.branch)) stopped = 1'b1;
  if (word.taken && word.branch) now.bubble = TIME'(BUBBLE + 1);
endfunction

// A transfer takes a descriptor of its engine.
function automatic void fly(input word_t word);
  logic [1:0] engine;
  logic [TransferBits-1:0] slot;
  engine = engine_of(word.operation.unit);
  slot = now.next[engine];
  now.flying[engine][slot] = 1'b1;
  now.tag[engine][slot] = word.tag;
  now.next[engine] = 32'(slot) == TRANSFERS - 1 ? '0 : slot + 1'b1;
  if (word.operation.unit == UnitStore) begin
    now.low[slot] = word.low;
    now.high[slot] = word.high;
  end else begin
    for (int c = 0; c < Cells; c++) if (word.operation.writes[c]) now.filling[c] = now.filling[c] + 4'd1;
  end
endfunction

function automatic void enqueue(input word_t word, input place_t place, input places_t older);
  operation_t x;
  logic [2:0] queue;
  entry_t entry;
  x = word.operation;
  queue = queue_of(x.unit);
  now.waiting[place] = 1'b1;
  now.tail[queue] = now.tail[queue] + 1'b1;
  now.after[place] = older;
  entry = '{operation: x, gp: '0, buffers: now.buffers, first: !word.flush && (x.sums & ~now.open) != '0};
  for (int r = 1; r < 16; r++)
    if (word.gp_writes[r]) begin
      entry.gp = 4'(r);
      now.gp_waits[r] = now.gp_waits[r] + 1'b1;
      now.gp_vector[r] = 1'b1;
    end
  queued[place] = entry;
  for (int a = 0; a < 4; a++)
    if (x.sums[a] && !word.flush) begin
      now.open[a] = x.unit != UnitDrain;
      if (x.unit == UnitDrain)
        now.buffers[a] = 32'(now.buffers[a]) == ACCUMULATORS - 1 ? '0 : now.buffers[a] + 1'b1;
    end
  if (x.unit >= UnitLoadMatrix) fly(word);
endfunction

// Dispatches a word, or stops for this cycle. Returns the unit for which it waits.
function automatic logic [7:1] dispatch(input int s);
  logic go;
  place_t place;
  places_t older;
  word_t word;
  logic [2:0] unit;
  word = words[s];
  unit = word.operation.unit;
  place = {queue_of(unit), now.tail[queue_of(unit)]};
  older = blockers(word);
  go = word.valid && !stopped && now.bubble == '0 && (SERIAL == 0 || (s == 0 && idle_o)) && registers_are_ready(word);
  if (unit == UnitFront) go = go && front_end_is_ready(word, older);
  else go = go && queue_is_ready(word, place);
  stopped = !go;
  take_o[s] = go;
  dispatch = '0;
  if (go && unit == UnitFront) begin
    execute(word);
  end else if (go) begin
    entry_o[s] = place;
    enqueue(word, place, older);
    dispatch[unit] = 1'b1;
  end
endfunction
