// Transfers between memory (an AXI4 master) and the SRAM domains, one at a time: rows of a matrix, rows of vectors, and
// rows of vectors back. Two walkers produce the same bursts: the first one issues addresses, as far ahead as memory
// accepts them; the second one follows the data. Two queues join elements and scales to rows, one row per cycle.
//
//              +--> walker --> AR, AW
//   descriptor-+
//              +--> walker --> bytes of R --> elements, scales --> mx_to_bf16 --> vector SRAM
//                         |                                   +-----------------> matrix SRAM
//                         +--> W <------------ elements, scales <-- mx_encode <-- vector SRAM
`include "assert.svh"
module dma #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int VRAM_ROWS = 256,
  parameter int MATRIX_ROWS = 32,
  parameter int BEAT = 8,          // bytes of a beat
  parameter int ELEMENT_M = 0,     // formats: dma_plan.sv
  parameter int ELEMENT_V = ELEMENT_M,  // matrices with prec 1
  parameter int BLOCK_M = 8,
  parameter int ELEMENT_A = 7,     // vectors with prec 0, which can also be BF16
  parameter int RULE_A = 0,
  parameter int BLOCK_A = 1,
  parameter int ELEMENT_B = 7,
  parameter int RULE_B = 0,
  parameter int BLOCK_B = 1,
  localparam int Row = 16 * VLEN,
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int MatrixBits = $clog2(MATRIX_ROWS),
  localparam int FirstBits = ELEMENT_M == 0 || ELEMENT_M == 2 ? 4 : ELEMENT_M == 3 || ELEMENT_M == 4 ? 6 : 8,
  localparam int SecondBits = ELEMENT_V == 0 || ELEMENT_V == 2 ? 4 : ELEMENT_V == 3 || ELEMENT_V == 4 ? 6 : 8,
  localparam int MBits = FirstBits > SecondBits ? FirstBits : SecondBits
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
  input  logic                  plain_i,       // vectors with prec 0 are BF16
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
  output logic                  load_second_o,
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
  localparam int VBytes = 2 * VLEN;  // BF16 is the widest
  localparam int MBytes = MLEN * MBits / 8;
  localparam int Bytes = VBytes > MBytes ? VBytes : MBytes;
  localparam int Most = VLEN / 8;  // scales: blocks have 8 or more elements
  localparam int RowBytesBits = $clog2(Bytes + 1);
  localparam int Offset = $clog2(BEAT);
  // Rows of a group: the scales of all of them wait for their elements.
  localparam int Group = VLEN <= 64 ? 16 : VLEN <= 512 ? 1024 / VLEN : 2;
  // Rows that are read ahead keep the bus busy; a wide row does so alone.
  localparam int Elements = (Bytes <= 256 ? 3 : 1) * Bytes + 2 * BEAT;
  localparam int Scales = (Group + 2) * Most + 2 * BEAT;
  localparam int RunBits = RowBytesBits + $clog2(Group) + 1;
  localparam int ElementBits = $clog2(Elements + 1);
  localparam int ScaleBits = $clog2(Scales + 1);
  localparam int BeatBits = $clog2(BEAT + 1);

  logic matrix, store, second;
  assign matrix = word_i[5:0] == dllm_isa_pkg::OP_H_PREFETCH_M;
  assign store = word_i[5:0] == dllm_isa_pkg::OP_H_STORE_V;
  assign second = word_i[22];
  logic [31:0] rows;
  assign rows = matrix ? prefetch_m_rows_i : store ? store_v_rows_i : prefetch_v_rows_i;

  logic scaled, starts;
  logic [63:0] elements, scales, element_stride, scale_stride;
  logic [RowBytesBits-1:0] element_bytes, scale_bytes;
  dma_plan #(
    .VLEN(VLEN), .MLEN(MLEN), .VRAM_ROWS(VRAM_ROWS), .MATRIX_ROWS(MATRIX_ROWS), .ELEMENT_M(ELEMENT_M),
    .ELEMENT_V(ELEMENT_V), .BLOCK_M(BLOCK_M), .ELEMENT_A(ELEMENT_A), .BLOCK_A(BLOCK_A), .ELEMENT_B(ELEMENT_B),
    .BLOCK_B(BLOCK_B), .ROW_BITS(RowBytesBits)
  ) i_plan (
    .matrix_i(matrix), .second_i(second), .plain_i, .strided_i(word_i[18]), .address_i, .offset_i, .scales_i, .stride_i,
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
  dma_walker #(.BEAT(BEAT), .GROUP(Group), .ROW_BITS(RowBytesBits)) i_ask (
    .clk_i, .rst_ni, .start_i(starts), .step_i(ask_step), .rows_i(rows), .scaled_i(scaled), .scales_first_i(!store),
    .elements_i(elements), .scales_i(scales), .element_stride_i(element_stride), .scale_stride_i(scale_stride),
    .element_bytes_i(element_bytes), .scale_bytes_i(scale_bytes), .valid_o(asks), .scales_o(), .run_o(), .bytes_o(),
    .address_o(ask_address), .beats_o(ask_length)
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
  logic moves, in_scales, beat_taken, burst_ends;
  logic [63:0] run, at;
  logic [RunBits-1:0] run_bytes;
  logic [7:0] beats, beat_q;
  dma_walker #(.BEAT(BEAT), .GROUP(Group), .ROW_BITS(RowBytesBits)) i_move (
    .clk_i, .rst_ni, .start_i(starts), .step_i(burst_ends), .rows_i(rows), .scaled_i(scaled), .scales_first_i(!store),
    .elements_i(elements), .scales_i(scales), .element_stride_i(element_stride), .scale_stride_i(scale_stride),
    .element_bytes_i(element_bytes), .scale_bytes_i(scale_bytes), .valid_o(moves), .scales_o(in_scales), .run_o(run),
    .bytes_o(run_bytes), .address_o(at), .beats_o(beats)
  );
  assign burst_ends = beat_taken && beat_q == beats;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) beat_q <= '0;
    else if (beat_taken) beat_q <= burst_ends ? '0 : beat_q + 1'b1;

  // Byte l of the beat is byte `first` + l of the run; it may be before or behind it. Only a run's first beat may start
  // before it.
  logic [63:0] beat_address;
  logic signed [31:0] first, last;
  logic [BEAT-1:0] in_run;
  logic [BeatBits-1:0] skipped, count;  // bytes of the beat before the run, and in it
  assign beat_address = {at[63:Offset], {Offset{1'b0}}} + (64'(beat_q) << Offset);
  assign first = 32'(beat_address - run);
  assign last = $signed(32'(run_bytes)) - first;
  assign skipped = first < 0 ? BeatBits'(-first) : '0;
  assign count = (last < BEAT ? BeatBits'(last) : BeatBits'(BEAT)) - skipped;
  always_comb begin
    for (int l = 0; l < BEAT; l++) in_run[l] = l >= 32'(skipped) && l < 32'(skipped) + 32'(count);
  end

  // Queues. Rows enter or leave whole: one of them per cycle.
  logic row_in, row_out, beat_in, beat_out;
  logic [8*Bytes-1:0] element_front, encoded;
  logic [8*Most-1:0] encoded_scales;
  localparam int ScaleData = Most > BEAT ? Most : BEAT;
  localparam int ElementData = Bytes > BEAT ? Bytes : BEAT;
  logic [8*ElementData-1:0] element_queue;
  logic [8*ScaleData-1:0] scale_queue;
  logic [8*BEAT-1:0] beat;
  logic [ElementBits-1:0] element_count;
  logic [ScaleBits-1:0] scale_count;
  assign beat = r_data_i >> {skipped, 3'b000};
  assign element_front = element_queue[8*Bytes-1:0];
  dma_bytes #(.CAPACITY(Elements), .PUSH(ElementData), .POP(ElementData)) i_elements (
    .clk_i, .rst_ni, .clear_i(starts),
    .pop_i(row_out ? ElementBits'(element_bytes) : beat_out && !in_scales ? ElementBits'(count) : '0),
    .push_i(row_in ? ElementBits'(element_bytes) : beat_in && !in_scales ? ElementBits'(count) : '0),
    .data_i(store ? (8 * ElementData)'(encoded) : (8 * ElementData)'(beat)), .count_o(element_count),
    .front_o(element_queue)
  );
  dma_bytes #(.CAPACITY(Scales), .PUSH(ScaleData), .POP(ScaleData)) i_scales (
    .clk_i, .rst_ni, .clear_i(starts),
    .pop_i(!scaled ? '0 : row_out ? ScaleBits'(scale_bytes) : beat_out && in_scales ? ScaleBits'(count) : '0),
    .push_i(!scaled ? '0 : row_in ? ScaleBits'(scale_bytes) : beat_in && in_scales ? ScaleBits'(count) : '0),
    .data_i(store ? (8 * ScaleData)'(encoded_scales) : (8 * ScaleData)'(beat)), .count_o(scale_count),
    .front_o(scale_queue)
  );
  assign beat_in = r_valid_i && r_ready_o;
  assign beat_out = w_valid_o && w_ready_i;
  assign beat_taken = store ? beat_out : beat_in;
  assign r_ready_o = moves && !store && (in_scales ? 32'(scale_count) + BEAT <= Scales
                                                   : 32'(element_count) + BEAT <= Elements);
  assign w_valid_o = moves && store && (in_scales ? 32'(scale_count) >= 32'(count)
                                                  : 32'(element_count) >= 32'(count));
  // What lies behind the run's bytes may change while the beat waits.
  logic [8*BEAT-1:0] sent;
  assign sent = (in_scales ? scale_queue[8*BEAT-1:0] : element_queue[8*BEAT-1:0]) << {skipped, 3'b000};
  always_comb begin
    for (int l = 0; l < BEAT; l++) w_data_o[8*l+:8] = in_run[l] ? sent[8*l+:8] : 8'h00;
  end
  assign w_strobe_o = in_run;
  assign w_last_o = beat_q == beats;

  // Rows: to read, read now; that have come or gone.
  logic active_q, storing_q, fetched_q, fetch, b_taken, stored, last_row;
  logic [31:0] row_q, left_q, element_room, scale_room;
  logic [15:0] answers_q;  // write responses that are due
  assign b_ready_o = 1'b1;
  assign b_taken = b_valid_i && b_ready_o;
  assign row_out = active_q && !storing_q && 32'(element_count) >= 32'(element_bytes) &&
                   (!scaled || 32'(scale_count) >= 32'(scale_bytes));
  assign row_in = fetched_q;
  assign element_room = 32'(Elements) - 32'(element_count) - (fetched_q ? 32'(element_bytes) : 32'd0);
  assign scale_room = 32'(Scales) - 32'(scale_count) - (fetched_q ? 32'(scale_bytes) : 32'd0);
  assign fetch = active_q && storing_q && left_q != 32'd0 && element_room >= 32'(element_bytes) &&
                 (!scaled || scale_room >= 32'(scale_bytes));
  assign last_row = left_q == 32'd1;
  assign stored = storing_q && !moves && !asks && answers_q == 16'd0;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {active_q, storing_q, fetched_q} <= '0;
      answers_q <= '0;
    end else begin
      if (starts) {active_q, storing_q} <= {1'b1, store};
      else if (done_o) {active_q, storing_q} <= 2'b00;
      fetched_q <= fetch;
      answers_q <= answers_q + 16'(aw_valid_o && aw_ready_i) - 16'(b_taken);
    end
  end
  always_ff @(posedge clk_i) begin
    if (starts) begin
      left_q <= rows;
      row_q <= matrix ? target_i / MLEN : target_i / VLEN;
    end else if (row_out || fetch) begin
      left_q <= left_q - 32'd1;
      row_q <= row_q + 32'd1;
    end
  end
  assign done_o = (row_out && last_row) || stored;

  // Rows into SRAM.
  assign load_o = row_out && matrix;
  assign load_row_o = MatrixBits'(row_q);
  assign load_second_o = second;
  assign load_codes_o = element_front[MLEN*MBits-1:0];
  assign load_scales_o = scale_queue[MLEN/BLOCK_M*8-1:0];
  assign write_o = row_out && !matrix;
  assign write_row_o = RowBits'(row_q);
  assign read_o = fetch;
  assign read_row_o = RowBits'(row_q);
  logic [8*Bytes-1:0] encoded_a, encoded_b;
  logic [8*Most-1:0] encoded_scales_a, encoded_scales_b;
  logic [Row-1:0] decoded_a, decoded_b;
  dma_codec #(.VLEN(VLEN), .BYTES(Bytes), .ELEMENT(ELEMENT_A), .RULE(RULE_A), .BLOCK(BLOCK_A)) i_a (
    .codes_i(element_front), .scales_i(scale_queue[8*Most-1:0]), .lanes_o(decoded_a), .lanes_i(read_data_i),
    .codes_o(encoded_a), .scales_o(encoded_scales_a)
  );
  dma_codec #(.VLEN(VLEN), .BYTES(Bytes), .ELEMENT(ELEMENT_B), .RULE(RULE_B), .BLOCK(BLOCK_B)) i_b (
    .codes_i(element_front), .scales_i(scale_queue[8*Most-1:0]), .lanes_o(decoded_b), .lanes_i(read_data_i),
    .codes_o(encoded_b), .scales_o(encoded_scales_b)
  );
  logic plain;
  assign plain = plain_i && !second;
  assign write_data_o = plain ? element_front[Row-1:0] : second ? decoded_b : decoded_a;
  assign encoded = plain ? (8 * Bytes)'(read_data_i) : second ? encoded_b : encoded_a;
  assign encoded_scales = second ? encoded_scales_b : encoded_scales_a;

  logic unused_bits;
  assign unused_bits = ^word_i ^ r_last_i ^ ^at[Offset-1:0] ^ ^row_q;

  `DLLM_ASSERT(a_last_beat_is_marked, !(r_valid_i && r_ready_o) || r_last_i == (beat_q == beats))
  `DLLM_ASSERT(a_no_stray_answer, !(b_taken && answers_q == 16'd0))
  `DLLM_ASSERT(a_one_transfer, !(starts && (moves || asks)))
  `DLLM_ASSERT(a_a_beat_has_bytes_of_its_run, !moves || count != '0)
endmodule
