// Where the operands of a product are: checks of its addresses, the first row of vector SRAM, and for every sub-array
// the row block and the lane block of matrix SRAM at column block 0.
module matrix_slice #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int VRAM_ROWS = 256,
  parameter int TILES = 2,
  localparam int Banks = MLEN / BLEN,
  localparam int Index = $clog2(Banks),
  localparam int Heads = MLEN / HLEN,
  localparam int PerHead = HLEN / BLEN,  // sub-arrays
  localparam int Count = $clog2(MLEN) + 1,
  localparam int HeadBits = $clog2(Heads) + 1,
  localparam int RowBits = $clog2(VRAM_ROWS),
  localparam int TileBits = $clog2(TILES),
  localparam int Window = VLEN == MLEN ? 1 : $clog2(VLEN / MLEN)
) (
  input  logic                    vector_i,       // of one row
  input  logic                    heads_i,
  input  logic                    transposed_i,
  input  logic                    whole_rows_i,   // M_TMM: the address is that of a row
  input  logic [31:0]             vector_address_i,
  input  logic [32:0]             matrix_address_i,
  input  logic [Count-1:0]        rows_i,         // of the vector operand
  input  logic [Count-1:0]        cols_i,
  input  logic [HeadBits-1:0]     group_i,
  input  logic                    side_by_side_i,
  input  logic [TILES*MLEN-1:0]   loaded_i,       // rows of matrix SRAM
  input  logic [TILES*MLEN-1:0]   second_i,       // those in the second format
  output logic [2:0]              trap_o,
  output logic [RowBits-1:0]      row_o,
  output logic [Window-1:0]       window_o,       // of MLEN lanes in the row
  output logic [TileBits-1:0]     tile_o,
  output logic                    second_o,       // the rows' format
  output logic [Banks*Index-1:0]  row_blocks_o,
  output logic [Banks*Index-1:0]  lane_blocks_o
);
`include "traps.svh"
  localparam int Lane = $clog2(MLEN);
  localparam int Within = $clog2(BLEN);

  logic [Lane-1:0] lane, row, slice;
  logic [32:0] tile;
  assign lane = matrix_address_i[Lane-1:0];
  assign row = matrix_address_i[2*Lane-1:Lane];
  assign slice = row == '0 ? lane : row;  // counted in elements, or in rows
  assign tile = matrix_address_i >> (2 * Lane);
  assign tile_o = TileBits'(tile);
  assign row_o = RowBits'(vector_address_i >> $clog2(VLEN));
  assign window_o = VLEN == MLEN ? '0 : Window'(vector_address_i >> Lane);

  logic beside;
  logic [Count+HeadBits-1:0] high, wide;  // rows of the heads' slices below each other, lanes of those side by side
  assign beside = heads_i && !transposed_i && side_by_side_i;
  assign high = ((Count + HeadBits)'(HLEN) * (Count + HeadBits)'(Heads)) >> group_i;
  assign wide = ((Count + HeadBits)'(cols_i) * (Count + HeadBits)'(Heads)) >> group_i;

  // Rows of the tile that are read.
  logic [Lane-1:0] first;
  logic [Count+HeadBits-1:0] number;
  logic [MLEN-1:0] needed;
  always_comb begin
    first = '0;
    number = (Count + HeadBits)'(MLEN);
    if (transposed_i) begin
      first = heads_i || whole_rows_i ? row : slice;
      number = heads_i ? (Count + HeadBits)'(cols_i) : (Count + HeadBits)'(BLEN);
    end else if (heads_i) begin
      first = beside ? row : slice;
      number = beside ? (Count + HeadBits)'(HLEN) : high;
    end
    needed = '0;
    for (int i = 0; i < MLEN; i++)
      needed[i] = i >= 32'(first) && i < 32'(first) + 32'(number);
  end

  logic vector_bad, slice_bad, load_bad;
  assign vector_bad = vector_address_i[Lane-1:0] != '0 ||
                      {1'b0, vector_address_i >> $clog2(VLEN)} + (vector_i ? 33'd1 : 33'(rows_i)) > 33'(VRAM_ROWS);
  always_comb begin
    slice_bad = tile >= 33'(TILES);
    if (heads_i && transposed_i)
      slice_bad = slice_bad || row[Within-1:0] != '0 || 32'(row) + 32'(cols_i) > MLEN || 32'(lane) % HLEN != 0 ||
                  32'(lane) + 32'(high) > MLEN;
    else if (beside)
      slice_bad = slice_bad || 32'(row) % HLEN != 0 || lane[Within-1:0] != '0 || 32'(lane) + 32'(wide) > MLEN;
    else begin
      slice_bad = slice_bad || (row != '0 && lane != '0) || (whole_rows_i && lane != '0);
      if (heads_i) slice_bad = slice_bad || 32'(slice) % HLEN != 0 || 32'(slice) + 32'(high) > MLEN;
      else slice_bad = slice_bad || slice[Within-1:0] != '0;
    end
  end
  assign load_bad = (loaded_i[MLEN*tile_o+:MLEN] & needed) != needed;
  logic [MLEN-1:0] seconds;
  assign seconds = second_i[MLEN*tile_o+:MLEN] & needed;
  assign second_o = seconds != '0;
  always_comb begin
    trap_o = TrapNone;
    if (vector_bad) trap_o = TrapRow;
    else if (slice_bad || load_bad) trap_o = TrapWord;
    else if (second_o && seconds != needed) trap_o = TrapValue;
    // Narrow slices side by side would be in the same banks as their neighbours.
    else if (beside && wide != (Count + HeadBits)'(cols_i) && cols_i < Count'(HLEN)) trap_o = TrapOrder;
  end

  always_comb begin
    for (int s = 0; s < Banks; s++) begin
      if (!heads_i) begin
        row_blocks_o[Index*s+:Index] = transposed_i ? Index'(slice >> Within) : Index'(s);
        lane_blocks_o[Index*s+:Index] = transposed_i ? Index'(s) : Index'(slice >> Within);
      end else if (transposed_i) begin
        row_blocks_o[Index*s+:Index] = Index'(row >> Within);
        lane_blocks_o[Index*s+:Index] = Index'(lane >> Within) + Index'(((s / PerHead) >> group_i) * PerHead) +
                                        Index'(s % PerHead);
      end else begin
        row_blocks_o[Index*s+:Index] = Index'((beside ? row : slice) >> Within) + Index'(s % PerHead) +
                                       (beside ? '0 : Index'(((s / PerHead) >> group_i) * PerHead));
        lane_blocks_o[Index*s+:Index] = !beside ? '0
            : Index'(lane >> Within) + Index'(((s / PerHead) >> group_i) * (32'(cols_i) / BLEN));
      end
    end
  end
endmodule
