// Transfers between memory (an AXI4 master) and the SRAM domains, one at a time: rows of a matrix, rows of vectors, and
// rows of vectors back. Two walkers produce the same bursts: the first one issues addresses, as far ahead as memory
// accepts them; the second one follows the data.
//
//              +--> walker --> AR, AW
//   descriptor-+
//              +--> walker --> bytes of R --> row buffer --> mx_to_bf16 --> vector SRAM
//                         |                       +-------------------------> matrix SRAM
//                         +--> W <-- row buffer <-- mx_encode <-- vector SRAM
`include "assert.svh"
module dma #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int VRAM_ROWS = 256,
  parameter int MATRIX_ROWS = 32,
  parameter int BEAT = 8,          // bytes of a beat
  parameter int ELEMENT_M = 0,     // formats: dma_plan.sv
  parameter int BLOCK_M = 8,
  parameter int ELEMENT_A = 7,
  parameter int RULE_A = 0,
  parameter int BLOCK_A = 1,
  parameter int ELEMENT_B = 7,
  parameter int RULE_B = 0,
  parameter int BLOCK_B = 1,
  localparam int Row = 16 * VLEN,
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int MatrixBits = $clog2(MATRIX_ROWS),
  localparam int MBits = ELEMENT_M == 0 || ELEMENT_M == 2 ? 4 : ELEMENT_M == 3 || ELEMENT_M == 4 ? 6 : 8
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  valid_i,       // first cycle of H_*
  input  logic [31:0]           word_i,
  input  logic [63:0]           address_i,     // the descriptor, until the end
  input  logic [31:0]           offset_i,
  input  logic [31:0]           scales_i,
  input  logic [31:0]           stride_i,
  input  logic [31:0]           target_i,
  input  logic [31:0]           prefetch_m_rows_i,
  input  logic [31:0]           prefetch_v_rows_i,
  input  logic [31:0]           store_v_rows_i,
  input  logic [63:0]           memory_bytes_i,
  output logic                  done_o,
  output logic [2:0]            trap_o,        // in the first cycle
  // Vector SRAM.
  output logic                  read_o,
  output logic [RowBits-1:0]    read_row_o,
  input  logic [Row-1:0]        read_data_i,
  output logic                  write_o,
  output logic [RowBits-1:0]    write_row_o,
  output logic [Row-1:0]        write_data_o,
  // Matrix SRAM.
  output logic                  load_o,
  output logic [MatrixBits-1:0] load_row_o,
  output logic [MLEN*MBits-1:0] load_codes_o,
  output logic [MLEN/BLOCK_M*8-1:0] load_scales_o,
  // AXI4, without identifiers: all transactions are in order.
  output logic                  ar_valid_o,
  input  logic                  ar_ready_i,
  output logic [63:0]           ar_address_o,
  output logic [7:0]            ar_length_o,
  input  logic                  r_valid_i,
  output logic                  r_ready_o,
  input  logic [8*BEAT-1:0]     r_data_i,
  input  logic                  r_last_i,
  output logic                  aw_valid_o,
  input  logic                  aw_ready_i,
  output logic [63:0]           aw_address_o,
  output logic [7:0]            aw_length_o,
  output logic                  w_valid_o,
  input  logic                  w_ready_i,
  output logic [8*BEAT-1:0]     w_data_o,
  output logic [BEAT-1:0]       w_strobe_o,
  output logic                  w_last_o,
  input  logic                  b_valid_i,
  output logic                  b_ready_o
);
  `include "mx_formats.svh"
  `include "traps.svh"
  localparam int ABytes = VLEN * mx_bits(ELEMENT_A) / 8;
  localparam int BBytes = VLEN * mx_bits(ELEMENT_B) / 8;
  localparam int MBytes = MLEN * MBits / 8;
  localparam int VBytes = ABytes > BBytes ? ABytes : BBytes;
  localparam int Bytes = VBytes > MBytes ? VBytes : MBytes;
  localparam int Most = VLEN / 8;  // scales: blocks have 8 or more elements
  localparam int Buffer = Bytes + Most;
  localparam int RunBits = $clog2(Buffer + 1) + 1;
  localparam int Offset = $clog2(BEAT);

  logic matrix, store, second;
  assign matrix = word_i[5:0] == dllm_isa_pkg::OP_H_PREFETCH_M;
  assign store = word_i[5:0] == dllm_isa_pkg::OP_H_STORE_V;
  assign second = word_i[22];
  logic [31:0] rows;
  assign rows = matrix ? prefetch_m_rows_i : store ? store_v_rows_i : prefetch_v_rows_i;

  logic scaled, starts;
  logic [63:0] elements, scales, element_stride, scale_stride;
  logic [RunBits-1:0] element_bytes, scale_bytes;
  dma_plan #(
    .VLEN(VLEN), .MLEN(MLEN), .VRAM_ROWS(VRAM_ROWS), .MATRIX_ROWS(MATRIX_ROWS), .ELEMENT_M(ELEMENT_M),
    .BLOCK_M(BLOCK_M), .ELEMENT_A(ELEMENT_A), .BLOCK_A(BLOCK_A), .ELEMENT_B(ELEMENT_B), .BLOCK_B(BLOCK_B),
    .RUN_BITS(RunBits)
  ) i_plan (
    .matrix_i(matrix), .second_i(second), .strided_i(word_i[18]), .address_i, .offset_i, .scales_i, .stride_i,
    .rows_i(rows), .target_i, .memory_bytes_i, .scaled_o(scaled), .elements_o(elements), .scales_o(scales),
    .element_stride_o(element_stride), .scale_stride_o(scale_stride), .element_bytes_o(element_bytes),
    .scale_bytes_o(scale_bytes), .trap_o
  );
  assign starts = valid_i && trap_o == TrapNone;

  // Addresses.
  logic asks, ask_step;
  logic [63:0] ask_address;
  logic [7:0] ask_length;
  /* verilator lint_off PINCONNECTEMPTY */
  dma_walker #(.BEAT(BEAT), .RUN_BITS(RunBits)) i_ask (
    .clk_i, .rst_ni, .start_i(starts), .step_i(ask_step), .rows_i(rows), .scaled_i(scaled), .elements_i(elements),
    .scales_i(scales), .element_stride_i(element_stride), .scale_stride_i(scale_stride),
    .element_bytes_i(element_bytes), .scale_bytes_i(scale_bytes), .valid_o(asks), .scales_o(), .run_o(), .bytes_o(),
    .address_o(ask_address), .beats_o(ask_length), .row_last_o()
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign ar_valid_o = asks && !store;
  assign aw_valid_o = asks && store;
  assign ar_address_o = ask_address;
  assign aw_address_o = ask_address;
  assign ar_length_o = ask_length;
  assign aw_length_o = ask_length;
  assign ask_step = store ? aw_valid_o && aw_ready_i : ar_valid_o && ar_ready_i;

  // Data: the burst whose beats move now.
  logic moves, in_scales, row_last, beat_taken, burst_ends;
  logic [63:0] run, at;
  logic [RunBits-1:0] run_bytes;
  logic [7:0] beats, beat_q;
  dma_walker #(.BEAT(BEAT), .RUN_BITS(RunBits)) i_move (
    .clk_i, .rst_ni, .start_i(starts), .step_i(burst_ends), .rows_i(rows), .scaled_i(scaled), .elements_i(elements),
    .scales_i(scales), .element_stride_i(element_stride), .scale_stride_i(scale_stride),
    .element_bytes_i(element_bytes), .scale_bytes_i(scale_bytes), .valid_o(moves), .scales_o(in_scales), .run_o(run),
    .bytes_o(run_bytes), .address_o(at), .beats_o(beats), .row_last_o(row_last)
  );
  assign burst_ends = beat_taken && beat_q == beats;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) beat_q <= '0;
    else if (beat_taken) beat_q <= burst_ends ? '0 : beat_q + 1'b1;

  // Byte l of the beat is byte `first` + l of the run; it may be before or behind it. Only a run's first burst may
  // start within a beat.
  logic [63:0] beat_address;
  logic signed [31:0] first;
  logic [BEAT-1:0] in_run;
  assign beat_address = {at[63:Offset], {Offset{1'b0}}} + (64'(beat_q) << Offset);
  assign first = 32'(beat_address - run);
  always_comb begin
    for (int l = 0; l < BEAT; l++)
      in_run[l] = first + l >= 0 && first + l < $signed(32'(run_bytes));
  end

  // The row buffer: elements, then scales.
  logic [8*Buffer-1:0] buffer_q, encoded;
  logic loads_row;
  logic signed [31:0] start_byte;
  assign start_byte = first + (in_scales ? Bytes : 0);
  always_ff @(posedge clk_i) begin
    if (loads_row) buffer_q <= encoded;
    else if (r_valid_i && r_ready_o)
      for (int l = 0; l < BEAT; l++) if (in_run[l]) buffer_q[8*(start_byte+l)+:8] <= r_data_i[8*l+:8];
  end
  always_comb begin
    w_data_o = '0;
    for (int l = 0; l < BEAT; l++) if (in_run[l]) w_data_o[8*l+:8] = buffer_q[8*(start_byte+l)+:8];
  end
  assign w_strobe_o = in_run;
  assign w_last_o = beat_q == beats;

  // Rows that are complete, or to be read.
  logic row_arrived_q, last_arrived_q, fetch_q, fetched_q, full_q;
  logic [31:0] row_q, left_q;
  logic [15:0] answers_q;  // write responses that are due
  logic storing_q, reading_q, b_taken, stored;
  assign r_ready_o = moves && reading_q;
  assign w_valid_o = moves && full_q;
  assign b_ready_o = 1'b1;
  assign beat_taken = store ? w_valid_o && w_ready_i : r_valid_i && r_ready_o;
  assign b_taken = b_valid_i && b_ready_o;
  assign stored = storing_q && !moves && !asks && answers_q == 16'd0;
  assign loads_row = fetched_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {row_arrived_q, last_arrived_q, fetch_q, fetched_q, full_q, storing_q, reading_q} <= '0;
      answers_q <= '0;
    end else begin
      row_arrived_q <= reading_q && burst_ends && row_last;
      last_arrived_q <= left_q == 32'd1;
      if (starts) reading_q <= !store;
      else if (row_arrived_q && last_arrived_q) reading_q <= 1'b0;
      if (starts) storing_q <= store;
      else if (stored) storing_q <= 1'b0;
      fetch_q <= (starts && store) || (storing_q && burst_ends && row_last && left_q != 32'd1);
      fetched_q <= fetch_q;
      if (fetched_q) full_q <= 1'b1;
      else if (burst_ends && row_last) full_q <= 1'b0;
      answers_q <= answers_q + 16'(aw_valid_o && aw_ready_i) - 16'(b_taken);
    end
  end
  always_ff @(posedge clk_i) begin
    if (starts) begin
      left_q <= rows;
      row_q <= matrix ? target_i / MLEN : target_i / VLEN;
    end else begin
      if (burst_ends && row_last) left_q <= left_q - 32'd1;
      if (row_arrived_q || fetched_q) row_q <= row_q + 32'd1;
    end
  end
  assign done_o = (row_arrived_q && last_arrived_q) || stored;

  // Rows into SRAM.
  assign load_o = row_arrived_q && matrix;
  assign load_row_o = MatrixBits'(row_q);
  assign load_codes_o = buffer_q[MLEN*MBits-1:0];
  assign load_scales_o = buffer_q[8*Bytes+:MLEN/BLOCK_M*8];
  assign write_o = row_arrived_q && !matrix;
  assign write_row_o = RowBits'(row_q);
  assign read_o = fetch_q;
  assign read_row_o = RowBits'(row_q);
  logic [8*Buffer-1:0] encoded_a, encoded_b;
  logic [Row-1:0] decoded_a, decoded_b;
  dma_codec #(.VLEN(VLEN), .BYTES(Bytes), .ELEMENT(ELEMENT_A), .RULE(RULE_A), .BLOCK(BLOCK_A)) i_a (
    .buffer_i(buffer_q), .lanes_o(decoded_a), .lanes_i(read_data_i), .buffer_o(encoded_a)
  );
  dma_codec #(.VLEN(VLEN), .BYTES(Bytes), .ELEMENT(ELEMENT_B), .RULE(RULE_B), .BLOCK(BLOCK_B)) i_b (
    .buffer_i(buffer_q), .lanes_o(decoded_b), .lanes_i(read_data_i), .buffer_o(encoded_b)
  );
  assign write_data_o = second ? decoded_b : decoded_a;
  assign encoded = second ? encoded_b : encoded_a;

  logic unused_bits;
  assign unused_bits = ^word_i ^ r_last_i ^ ^at[Offset-1:0] ^ ^row_q;

  `DLLM_ASSERT(a_last_beat_is_marked, !(r_valid_i && r_ready_o) || r_last_i == (beat_q == beats))
  `DLLM_ASSERT(a_no_stray_answer, !(b_taken && answers_q == 16'd0))
  `DLLM_ASSERT(a_one_transfer, !(starts && (moves || asks)))
endmodule
