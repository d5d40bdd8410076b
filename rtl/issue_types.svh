// Of the issue stage: what it knows of an instruction, and its state. Cycles are counted from now: 0 is now or earlier.
typedef logic [TIME-1:0] cycles_t;
typedef logic [Cells-1:0] cells_t;
typedef logic [EntryBits-1:0] place_t;       // in the queues
typedef logic [Entries-1:0] places_t;
typedef logic [3:0][BufferBits-1:0] sums_t;  // for each accumulator, which of its buffers

// What its unit needs of an instruction (issue_decode.sv).
typedef struct packed {
  logic [2:0] unit;
  logic [3:0] pipe;
  cycles_t latency, occupies, rows;
  cells_t reads, writes;
  logic [ROWS-1:0] again;
  logic [7:0] f_reads, f_writes;
  logic accumulates;
  logic [3:0] sums;
} operation_t;

// A word of the program.
typedef struct packed {
  operation_t operation;
  logic valid, taken, is_int, index, ends_loop, branch, flush, fence;
  logic [15:0] gp_reads, gp_writes;
  logic [3:0] tag;                // of a transfer or a fence
  logic [1:0][63:0] low, high;    // memory that a transfer touches
} word_t;

// An instruction that waits for its unit.
typedef struct packed {
  operation_t operation;
  logic [3:0] gp;                 // the general register that a vector instruction writes
  sums_t buffers;
  logic first;                    // it begins a sum
} entry_t;

// The result of a pipe. It is in the pipe's latch from a cycle on, until the next one comes.
typedef struct packed {
  logic valid;
  logic [CellBits-1:0] row;
  cycles_t begins, ends;
} latch_t;

// When an instruction starts, when its results are there, and until when it reads.
typedef struct packed {
  cycles_t start, done, ends;
} times_t;

typedef struct packed {
  // Cells and registers.
  cycles_t [Cells-1:0] ready;                        // until the value may be read
  cycles_t [Cells-1:0] reading;                      // until it is no longer read
  logic [Cells-1:0][3:0] filling;                    // loads that it waits for
  cycles_t [15:0] gp_ready;
  logic [15:0][7:0] gp_waits;                        // vector instructions that will write it and have not started
  logic [15:0] gp_vector;                            // its last writer is the vector unit
  cycles_t [7:0] f_ready, f_reading;
  logic [7:0][3:0] f_pipe;                           // that wrote it
  // Units.
  latch_t [Pipes-1:0][History-1:0] latches;          // the newest result of a pipe first
  cycles_t [Pipes-1:0] pipe_free;
  cycles_t scalar_free, array_free, drain_free, last_start, bubble;
  logic [3:0] starts;                                // at last_start
  cycles_t [3:0][ACCUMULATORS-1:0] summed;           // until a sum is complete
  cycles_t [3:0][ACCUMULATORS-1:0] drained;          // until its buffer has been written out
  logic [3:0] open;                                  // sums that have begun, in the front end's order
  sums_t buffers;
  logic [HORIZON-1:0][3:0] calendar;                 // port accesses of each cycle from now on; more than PORTS if
                                                     // rows arrive in booked ones
  // Transfers in flight of each DMA engine, and the bytes of stores, for loads that come after them.
  logic [2:0][TRANSFERS-1:0] flying;
  logic [2:0][TRANSFERS-1:0][3:0] tag;
  logic [TRANSFERS-1:0][1:0][63:0] low, high;
  logic [2:0][TransferBits-1:0] next;
  // Queues: vector, scalar, matrix, the DMA engines. Array and write-outs share one, and start independently.
  places_t waiting;
  cycles_t [Entries-1:0] hold;                       // until a start that was scheduled
  logic [5:0][QueueBits-1:0] tail;                   // the next to be filled: the oldest one
  logic [Entries-1:0][Entries-1:0] after;            // older ones that must have started
} state_t;
