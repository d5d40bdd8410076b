// The matrix unit: matrix SRAM, the array and its results. It executes M_* instructions and the setters of its control
// registers, one at a time. A product occupies it for BLEN cycles per tile of outputs; its results arrive later, and a
// write-out waits for them.
module matrix_unit #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int VRAM_ROWS = 256,
  parameter int TILES = 2,         // of MLEN x MLEN in matrix SRAM
  parameter int ELEMENT_A = 1,     // mx_formats.svh
  parameter int RULE_A = 0,
  parameter int BLOCK_A = 8,
  parameter int ELEMENT_W = 0,
  parameter int RULE_W = 0,
  parameter int BLOCK_W = 8,
  parameter int ELEMENT_V = ELEMENT_W,  // the matrices' second format, with the same blocks
  parameter int RULE_V = RULE_W,
  parameter int CONTRACTION = 15,  // bits of terms per result
  localparam int Row = 16 * VLEN,
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int MatrixBits = $clog2(TILES * MLEN),
  localparam int FirstBits = ELEMENT_W == 0 || ELEMENT_W == 2 ? 4 : ELEMENT_W == 3 || ELEMENT_W == 4 ? 6 : 8,
  localparam int SecondBits = ELEMENT_V == 0 || ELEMENT_V == 2 ? 4 : ELEMENT_V == 3 || ELEMENT_V == 4 ? 6 : 8,
  localparam int WBits = FirstBits > SecondBits ? FirstBits : SecondBits,
  localparam int Count = $clog2(MLEN) + 1,
  localparam int HeadBits = $clog2(MLEN / HLEN) + 1
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    start_i,       // a program
  input  logic                    valid_i,       // first cycle of a matrix instruction
  input  logic [31:0]             word_i,        // until its last cycle, as its registers
  input  logic [31:0]             d_i,
  input  logic [31:0]             a_i,
  input  logic [31:0]             b_i,
  output logic                    done_o,        // its last cycle
  output logic [2:0]              trap_o,        // in the first cycle
  // Control registers.
  input  logic [31:0]             scale_i,
  input  logic [Count-1:0]        rows_i,
  input  logic [Count-1:0]        cols_i,
  input  logic [HeadBits-1:0]     group_i,
  input  logic [31:0]             head_stride_i,
  input  logic                    side_by_side_i,
  input  logic [Count-1:0]        mm_rows_i,
  // Vector SRAM. The first row of an operand was requested when the instruction was decoded.
  output logic                    read_o,
  output logic [RowBits-1:0]      read_row_o,
  input  logic [Row-1:0]          read_data_i,
  output logic                    write_o,
  output logic [RowBits-1:0]      write_row_o,
  output logic [VLEN-1:0]         write_lanes_o,
  output logic [Row-1:0]          write_data_o,
  // Rows of matrix SRAM from memory.
  input  logic                    load_i,
  input  logic [MatrixBits-1:0]   load_row_i,
  input  logic                    load_second_i,  // in the second format
  input  logic [MLEN*WBits-1:0]   load_codes_i,
  input  logic [MLEN/BLOCK_W*8-1:0] load_scales_i
);
  `include "mx_formats.svh"
  `include "traps.svh"
  localparam int Banks = MLEN / BLEN;
  localparam int Index = $clog2(Banks);
  localparam int Heads = MLEN / HLEN;
  localparam int Term = $clog2(BLEN);
  localparam int AWidth = mx_width(ELEMENT_A);
  // Each of the matrices' formats has its own window. The array has that with the fewest guard bits: elements of the
  // other one are moved up before they are multiplied.
  localparam int Product = mx_magnitude(ELEMENT_A) + mx_magnitude(ELEMENT_W) + CONTRACTION;
  localparam int ProductV = mx_magnitude(ELEMENT_A) + mx_magnitude(ELEMENT_V) + CONTRACTION;
  localparam int Most = Product > ProductV ? Product : ProductV;
  localparam int Acc = Most <= 31 ? 32 : 64;
  localparam int GuardW = (Product <= 31 ? 31 : 63) - Product;
  localparam int GuardV = (ProductV <= 31 ? 31 : 63) - ProductV;
  localparam int Guard = GuardW < GuardV ? GuardW : GuardV;
  localparam int WidthW = mx_width(ELEMENT_W) + GuardW - Guard;
  localparam int WidthV = mx_width(ELEMENT_V) + GuardV - Guard;
  localparam int WWidth = WidthW > WidthV ? WidthW : WidthV;
  localparam logic [11:0] PointW = 12'(GuardW + mx_fraction(ELEMENT_A, RULE_A) + mx_fraction(ELEMENT_W, RULE_W));
  localparam logic [11:0] PointV = 12'(GuardV + mx_fraction(ELEMENT_A, RULE_A) + mx_fraction(ELEMENT_V, RULE_V));
  localparam int Block = BLOCK_A < BLOCK_W ? BLOCK_A : BLOCK_W;
  localparam int GroupTile = Block < MLEN ? Block : MLEN;
  localparam int GroupHeads = GroupTile < HLEN ? GroupTile : HLEN;
  localparam int Units = MLEN / GroupHeads;
  localparam int Outputs = BLEN * BLEN;
  localparam int Word = BLEN * WBits + 10;
  localparam int Tiles = Banks * Banks + Banks + 2;  // of outputs
  localparam int TileBits = $clog2(Tiles);
  localparam int Entries = Banks * Banks * BLEN + Banks + BLEN + 1;
  localparam int EntryBits = $clog2(Entries);
  localparam int Latency = 3 * BLEN + $clog2(Banks) + 4;  // of the last row: into the accumulators

  // ---- The instruction ----------------------------------------------------------------------------------------------
  logic [5:0] op;
  logic is_product, is_write_out, transposed, vector_first;
  logic [1:0] kind;  // 0 M_MM, 1 M_MV, 2 M_BMM, 3 M_BMV
  assign op = word_i[5:0];
  always_comb begin
    kind = 2'd0;
    is_product = 1'b1;
    is_write_out = 1'b0;
    transposed = 1'b0;
    case (op)
      dllm_isa_pkg::OP_M_MM: ;
      dllm_isa_pkg::OP_M_TMM: transposed = 1'b1;
      dllm_isa_pkg::OP_M_MV: kind = 2'd1;
      dllm_isa_pkg::OP_M_TMV: {kind, transposed} = {2'd1, 1'b1};
      dllm_isa_pkg::OP_M_BMM: kind = 2'd2;
      dllm_isa_pkg::OP_M_BTMM: {kind, transposed} = {2'd2, 1'b1};
      dllm_isa_pkg::OP_M_BMV: kind = 2'd3;
      dllm_isa_pkg::OP_M_BTMV: {kind, transposed} = {2'd3, 1'b1};
      default: begin
        is_product = 1'b0;
        is_write_out = op != dllm_isa_pkg::OP_M_SUM;
        kind = op == dllm_isa_pkg::OP_M_MM_WO ? 2'd0 : op == dllm_isa_pkg::OP_M_MV_WO ? 2'd1
               : op == dllm_isa_pkg::OP_M_BMM_WO ? 2'd2 : 2'd3;
      end
    endcase
  end
  assign vector_first = op == dllm_isa_pkg::OP_M_TMM;

  logic [2:0] slice_trap, product_trap, drain_trap, write_trap;
  logic second;
  logic [RowBits-1:0] first_row;
  logic [(VLEN == MLEN ? 1 : $clog2(VLEN / MLEN))-1:0] window;
  logic [$clog2(TILES)-1:0] matrix_tile;
  logic [Banks*Index-1:0] row_blocks, lane_blocks;
  logic [TILES*MLEN-1:0] loaded_q, second_q;
  matrix_slice #(.VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS), .TILES(TILES)) i_slice (
    .vector_i(kind[0]), .heads_i(kind[1]), .transposed_i(transposed), .whole_rows_i(vector_first),
    .vector_address_i(vector_first ? a_i : b_i),
    .matrix_address_i(vector_first ? {1'b0, b_i} : {1'b0, a_i} + (kind == 2'd3 ? {1'b0, d_i} : 33'd0)),
    .rows_i(kind[1] ? rows_i : mm_rows_i), .cols_i, .group_i, .side_by_side_i, .loaded_i(loaded_q),
    .second_i(second_q), .trap_o(slice_trap), .row_o(first_row), .window_o(window), .tile_o(matrix_tile),
    .second_o(second), .row_blocks_o(row_blocks), .lane_blocks_o(lane_blocks)
  );

  // Partial sums of a kind: their shape, their format, and how many terms they have.
  logic [3:0] used_q;
  logic [3:0] sums_second_q;
  logic [Count-1:0] sums_rows_q[4], sums_cols_q[4];
  logic [CONTRACTION-1:0] terms_q[4];
  logic [CONTRACTION:0] terms;
  logic [Count-1:0] shape_rows, shape_cols;
  logic other_shape;
  assign shape_rows = kind[0] ? Count'(1) : kind[1] ? rows_i : mm_rows_i;
  assign shape_cols = kind[1] ? cols_i : Count'(BLEN);
  assign other_shape = used_q[kind] && (sums_rows_q[kind] != shape_rows || sums_cols_q[kind] != shape_cols);
  assign terms = (used_q[kind] ? {1'b0, terms_q[kind]} : '0) + (CONTRACTION + 1)'(kind[1] ? HLEN : MLEN);
  always_comb begin
    product_trap = slice_trap;
    if (slice_trap == TrapNone &&
        (other_shape || (used_q[kind] && sums_second_q[kind] != second) || terms[CONTRACTION]))
      product_trap = TrapValue;
    write_trap = drain_trap == TrapNone && other_shape ? TrapValue : drain_trap;
  end
  assign trap_o = is_product ? product_trap : is_write_out ? write_trap : TrapNone;

  // ---- Operands of tiles: row blocks outside, column blocks inside --------------------------------------------------
  logic begins, busy_q, active, last_term, last_block, last_rows, product_done;
  logic [Term-1:0] term_q, term;
  logic [Count-1:0] block_q, block, rows_q, rows;
  assign begins = valid_i && is_product && product_trap == TrapNone;
  assign active = begins || busy_q;
  assign term = begins ? '0 : term_q;
  assign block = begins ? '0 : block_q;
  assign rows = begins ? '0 : rows_q;
  assign last_term = term == Term'(BLEN - 1);
  assign last_block = !kind[1] || block == Count'(32'(cols_i) / BLEN - 1);
  assign last_rows = kind != 2'd2 || rows == Count'(32'(rows_i) / BLEN - 1);
  assign product_done = active && last_term && last_block && last_rows;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) busy_q <= 1'b0;
    else busy_q <= active && !product_done;
  always_ff @(posedge clk_i)
    if (active) begin
      term_q <= last_term ? '0 : term + 1'b1;
      block_q <= !last_term ? block : last_block ? '0 : block + 1'b1;
      rows_q <= last_term && last_block ? rows + 1'b1 : rows;
    end
  logic [Count-1:0] next_rows;
  assign next_rows = last_term && last_block ? rows + 1'b1 : rows;
  assign read_o = active && !product_done;
  assign read_row_o = first_row + RowBits'(32'(next_rows) * BLEN) + (last_term ? '0 : RowBits'(term) + 1'b1);

  logic [Banks*Index-1:0] row_blocks_now, lane_blocks_now;
  always_comb begin
    for (int s = 0; s < Banks; s++) begin
      row_blocks_now[Index*s+:Index] = row_blocks[Index*s+:Index] + (transposed ? Index'(block) : '0);
      lane_blocks_now[Index*s+:Index] = lane_blocks[Index*s+:Index] + (transposed ? '0 : Index'(block));
    end
  end
  logic [Banks*Word-1:0] load_words, words;
  logic load_second;
  assign load_second = load_second_i && (ELEMENT_V != ELEMENT_W || RULE_V != RULE_W);
  generate
    for (genvar b = 0; b < Banks; b++) begin : g_load
      localparam int InBlock = b * BLEN / BLOCK_W;
      logic [BLOCK_W*WBits-1:0] codes;
      logic [BLOCK_W-1:0] zeros, specials;
      for (genvar i = 0; i < BLOCK_W; i++) begin : g_element
        localparam int At = InBlock * BLOCK_W + i;
        localparam int Fixed = mx_width(ELEMENT_W) > mx_width(ELEMENT_V) ? mx_width(ELEMENT_W) : mx_width(ELEMENT_V);
        logic signed [Fixed-1:0] fixed;
        assign codes[WBits*i+:WBits] = load_second ? WBits'(load_codes_i[SecondBits*At+:SecondBits])
                                                     : WBits'(load_codes_i[FirstBits*At+:FirstBits]);
        mx_decode_two #(.FIRST(ELEMENT_W), .SECOND(ELEMENT_V)) i_decode (
          .code_i(codes[WBits*i+:WBits]), .second_i(load_second), .fixed_o(fixed), .special_o(specials[i])
        );
        assign zeros[i] = fixed == '0;
      end
      // A NaN element makes its block NaN: the array adds integers.
      assign load_words[Word*b+:Word] = {load_scales_i[8*InBlock+:8] == 8'hff || specials != '0, zeros == '1,
                                         load_scales_i[8*InBlock+:8],
                                         codes[(b*BLEN-InBlock*BLOCK_W)*WBits+:BLEN*WBits]};
    end
  endgenerate
  matrix_sram #(.BLEN(BLEN), .BANKS(Banks), .WORD(Word), .ROWS(TILES * MLEN)) i_sram (
    .clk_i, .rst_ni, .write_i(load_i), .write_row_i(load_row_i), .write_data_i(load_words), .read_i(active),
    .read_row_i({matrix_tile, {Index{1'b0}}, term}), .row_blocks_i(row_blocks_now), .lane_blocks_i(lane_blocks_now),
    .data_o(words)
  );
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) loaded_q <= '0;
    else if (load_i) loaded_q[load_row_i] <= 1'b1;
  always_ff @(posedge clk_i) if (load_i) second_q[load_row_i] <= load_second;

  // What a tile needs later travels with it.
  localparam int Info = 4 + TileBits + EntryBits;
  logic [Info-1:0] info, info_load, info_start, info_terms_q;
  logic [TileBits-1:0] tile;
  logic [EntryBits-1:0] entry;
  always_comb begin
    case (kind)
      2'd0: {tile, entry} = {TileBits'(Banks * Banks + Banks), EntryBits'(Banks * Banks * BLEN + Banks)};
      2'd1: {tile, entry} = {TileBits'(Banks * Banks + Banks + 1), EntryBits'(Banks * Banks * BLEN + Banks + BLEN)};
      2'd2: {tile, entry} = {TileBits'(32'(rows) * Banks + 32'(block)),
                             EntryBits'((32'(rows) * Banks + 32'(block)) * BLEN)};
      default: {tile, entry} = {TileBits'(Banks * Banks + 32'(block)), EntryBits'(Banks * Banks * BLEN + 32'(block))};
    endcase
  end
  assign info = {second, kind, !used_q[kind], tile, entry};
  delay #(.WIDTH(Info), .DEPTH(2)) i_info (.clk_i, .data_i(info), .data_o(info_load));
  logic load, start, start_transposed, sends, terms_transposed;
  logic [Info-1:0] info_second_q;
  always_ff @(posedge clk_i) begin
    if (load) info_second_q <= info_load;
    if (start) info_terms_q <= info_start;
  end
  assign info_start = info_second_q;

  logic [BLEN*Banks*10-1:0] a_scales;
  logic [Banks*BLEN*10-1:0] w_scales;
  logic [Term-1:0] sent;
  logic [Banks*BLEN*AWidth-1:0] a_terms;
  logic [Banks*BLEN*WWidth-1:0] w_terms;
  logic [Banks*BLEN*9-1:0] a_term_scales, w_term_scales;
  matrix_operands #(
    .MLEN(MLEN), .BLEN(BLEN), .ELEMENT_A(ELEMENT_A), .RULE_A(RULE_A), .BLOCK_A(BLOCK_A), .ELEMENT_W(ELEMENT_W),
    .ELEMENT_V(ELEMENT_V), .UP_W(GuardW - Guard), .UP_V(GuardV - Guard)
  ) i_operands (
    .clk_i, .rst_ni, .valid_i(active), .index_i(term), .lanes_i(read_data_i[16*MLEN*32'(window)+:16*MLEN]),
    .words_i(words), .transposed_i(transposed),
    .second_i(info_start[EntryBits+TileBits+3]), .load_o(load), .start_o(start), .transposed_o(start_transposed),
    .a_scales_o(a_scales), .w_scales_o(w_scales), .term_o(sends), .term_index_o(sent),
    .term_transposed_o(terms_transposed), .a_o(a_terms), .a_term_scales_o(a_term_scales), .w_o(w_terms),
    .w_term_scales_o(w_term_scales)
  );

  logic [Heads*Outputs*10-1:0] references, rises;
  logic [Heads*Outputs-1:0] nans;
  logic [Outputs*Units*10-1:0] distances;
  matrix_references #(.MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .TILES(Tiles), .UNIT(GroupHeads)) i_references (
    .clk_i, .rst_ni, .read_i(load), .tile_i(info_load[EntryBits+:TileBits]), .start_i(start),
    .fresh_i(info_start[EntryBits+TileBits]), .transposed_i(start_transposed),
    .heads_i(info_start[EntryBits+TileBits+2]), .a_scales_i(a_scales), .w_scales_i(w_scales),
    .references_o(references), .rises_o(rises), .nans_o(nans), .distances_o(distances)
  );

  // ---- Array and results --------------------------------------------------------------------------------------------
  logic drains, write_out_done, idle;
  logic [EntryBits-1:0] drain_entry;
  logic [Heads*BLEN*Acc-1:0] values;
  logic [Heads*BLEN*10-1:0] result_references;
  logic [Heads*BLEN-1:0] result_nans;
  matrix_array #(
    .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .A_WIDTH(AWidth), .W_WIDTH(WWidth), .ACC(Acc), .GUARD(Guard),
    .GROUP_TILE(GroupTile), .GROUP_HEADS(GroupHeads)
  ) i_array (
    .clk_i, .rst_ni, .valid_i(sends), .index_i(sent), .transposed_i(terms_transposed), .a_i(a_terms),
    .a_scales_i(a_term_scales), .w_i(w_terms), .w_scales_i(w_term_scales),
    .heads_i(info_terms_q[EntryBits+TileBits+2]), .one_row_i(info_terms_q[EntryBits+TileBits+1]),
    .fresh_i(info_terms_q[EntryBits+TileBits]), .entry_i(info_terms_q[EntryBits-1:0]), .references_i(references),
    .rises_i(rises), .nans_i(nans), .distances_i(distances), .drains_i(drains), .drain_entry_i(drain_entry),
    .values_o(values), .references_o(result_references), .nans_o(result_nans)
  );

  logic [$clog2(Latency+1)-1:0] wait_q;
  assign idle = wait_q == '0;
  assign drains = is_write_out && idle;
  matrix_drain #(
    .VLEN(VLEN), .MLEN(MLEN), .BLEN(BLEN), .HLEN(HLEN), .VRAM_ROWS(VRAM_ROWS), .ACC(Acc)
  ) i_drain (
    .clk_i, .rst_ni, .start_i(valid_i && is_write_out && write_trap == TrapNone), .idle_i(idle), .kind_i(kind),
    .empty_i(!used_q[kind]), .address_i({1'b0, d_i} + {15'b0, word_i[31:14]}), .row_stride_i(a_i),
    .head_stride_i, .scale_i, .mm_rows_i, .rows_i, .cols_i,
    .point_i(sums_second_q[kind] ? PointV : PointW), .trap_o(drain_trap), .entry_o(drain_entry),
    .values_i(values), .references_i(result_references), .nans_i(result_nans), .write_o, .row_o(write_row_o),
    .lanes_o(write_lanes_o), .data_o(write_data_o), .done_o(write_out_done)
  );
  assign done_o = is_product ? product_done : is_write_out ? write_out_done : valid_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      used_q <= '0;
      wait_q <= '0;
    end else begin
      if (start_i) used_q <= '0;
      if (product_done) used_q[kind] <= 1'b1;
      if (write_out_done) used_q[kind] <= 1'b0;
      if (product_done) wait_q <= ($clog2(Latency + 1))'(Latency - 1);
      else if (!idle) wait_q <= wait_q - 1'b1;
    end
  end
  always_ff @(posedge clk_i)
    if (begins) begin
      sums_second_q[kind] <= second;
      sums_rows_q[kind] <= shape_rows;
      sums_cols_q[kind] <= shape_cols;
      terms_q[kind] <= terms[CONTRACTION-1:0];
    end

  generate
    if (Most > 63 || BLOCK_A < BLEN || BLOCK_W < BLEN ||
        BLOCK_A > MLEN || BLOCK_W > MLEN || TILES < 2) begin : g_check
      $fatal(1, "formats do not fit: a window of 63 bits, blocks of BLEN to MLEN lanes, two tiles");
    end
  endgenerate
  logic unused_bits;
  assign unused_bits = ^word_i[13:6];
endmodule
