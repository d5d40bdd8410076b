// The array: sub-arrays, the trees that join them (one per column), and the accumulators of every head and column. A
// tile of BLEN x BLEN outputs per head begins every BLEN cycles; a row of results per cycle and column leaves the
// trees.
//
//   terms ---> sub_array 0 --+
//   terms ---> sub_array 1 --+--> tree of a head --+--> tree over heads --> accumulators of head 0
//      ...                   |                     +----------------------> accumulators of each head
//   references, rises, distances --- delayed as the values are ---+
module matrix_array #(
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int A_WIDTH = 8,
  parameter int W_WIDTH = 4,
  parameter int ACC = 32,
  parameter int GUARD = 6,
  parameter int GROUP_TILE = 8,   // terms that share both scales in the transposed order
  parameter int GROUP_HEADS = 4,  // the same within a head
  localparam int Banks = MLEN / BLEN,
  localparam int Heads = MLEN / HLEN,
  localparam int PerHead = HLEN / BLEN,
  localparam int Units = MLEN / GROUP_HEADS,
  localparam int Outputs = BLEN * BLEN,
  localparam int Term = $clog2(BLEN),
  localparam int Entries = Banks * Banks * BLEN + Banks + BLEN + 1,
  localparam int EntryBits = $clog2(Entries)
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        valid_i,       // terms
  input  logic [Term-1:0]             index_i,
  input  logic                        transposed_i,
  input  logic [Banks*BLEN*A_WIDTH-1:0] a_i,
  input  logic [Banks*BLEN*9-1:0]     a_scales_i,
  input  logic [Banks*BLEN*W_WIDTH-1:0] w_i,
  input  logic [Banks*BLEN*9-1:0]     w_scales_i,
  input  logic                        heads_i,       // of the tile, as the following
  input  logic                        one_row_i,
  input  logic                        fresh_i,
  input  logic [EntryBits-1:0]        entry_i,       // of row 0
  input  logic [Heads*Outputs*10-1:0] references_i,
  input  logic [Heads*Outputs*10-1:0] rises_i,
  input  logic [Heads*Outputs-1:0]    nans_i,
  input  logic [Outputs*Units*10-1:0] distances_i,
  input  logic                        drains_i,
  input  logic [EntryBits-1:0]        drain_entry_i,
  output logic [Heads*BLEN*ACC-1:0]   values_o,      // of (head, column), a cycle after drain_entry_i
  output logic [Heads*BLEN*10-1:0]    references_o,
  output logic [Heads*BLEN-1:0]       nans_o
);
  localparam int Levels = $clog2(Banks);
  localparam int HeadLevels = $clog2(PerHead);
  localparam int AlignTile = $clog2(GROUP_TILE / BLEN);
  localparam int AlignHeads = $clog2(GROUP_HEADS / BLEN);
  localparam int Leaves = BLEN + 1;  // cycles from a row's first term to its value in column 0

  logic [Term-1:0] row;
  delay #(.WIDTH(Term), .DEPTH(Leaves)) i_row (.clk_i, .data_i(index_i), .data_o(row));
  logic [Banks*BLEN*ACC-1:0] leaves;  // (sub-array, column)
  generate
    for (genvar s = 0; s < Banks; s++) begin : g_sub
      logic [BLEN*8-1:0] a_scales, w_scales;
      logic [BLEN-1:0] a_zeros, w_zeros;
      for (genvar i = 0; i < BLEN; i++) begin : g_scales
        assign {a_zeros[i], a_scales[8*i+:8]} = a_scales_i[(s*BLEN+i)*9+:9];
        assign {w_zeros[i], w_scales[8*i+:8]} = w_scales_i[(s*BLEN+i)*9+:9];
      end
      sub_array #(.BLEN(BLEN), .A_WIDTH(A_WIDTH), .W_WIDTH(W_WIDTH), .ACC(ACC), .GUARD(GUARD)) i_sub (
        .clk_i, .first_i(index_i == '0), .align_i(!transposed_i), .a_i(a_i[s*BLEN*A_WIDTH+:BLEN*A_WIDTH]),
        .a_scales_i(a_scales), .a_zeros_i(a_zeros), .w_i(w_i[s*BLEN*W_WIDTH+:BLEN*W_WIDTH]), .w_scales_i(w_scales),
        .w_zeros_i(w_zeros), .references_i(references_i[(s/PerHead)*Outputs*10+:Outputs*10]), .row_i(row),
        .values_o(leaves[s*BLEN*ACC+:BLEN*ACC])
      );
    end

    for (genvar j = 0; j < BLEN; j++) begin : g_column
      // What belongs to the row that will leave column j: selected with its first term, then delayed as its value is.
      localparam int Aside = EntryBits + 2;
      logic [Units*10-1:0] distances, tile_distances, heads_distances;
      logic tile_aligns, heads_align;
      logic [Aside-1:0] entry_aside, entry_next;
      logic [Heads*21-1:0] heads_aside, heads_now;
      logic adds_next;
      assign distances = distances_i[(32'(index_i)*BLEN+j)*Units*10+:Units*10];
      delay #(.WIDTH(Units * 10 + 1), .DEPTH(Leaves + j + AlignTile)) i_tile (
        .clk_i, .data_i({transposed_i && !heads_i, distances}), .data_o({tile_aligns, tile_distances})
      );
      delay #(.WIDTH(Units * 10 + 1), .DEPTH(Leaves + j + AlignHeads)) i_heads (
        .clk_i, .data_i({transposed_i && heads_i, distances}), .data_o({heads_align, heads_distances})
      );
      assign entry_aside = {heads_i, fresh_i, entry_i + (one_row_i ? '0 : EntryBits'(index_i))};
      delay #(.WIDTH(Aside), .DEPTH(Leaves + j + Levels - 1)) i_entry (
        .clk_i, .data_i(entry_aside), .data_o(entry_next)
      );
      for (genvar h = 0; h < Heads; h++) begin : g_aside
        assign heads_aside[21*h+:21] = {nans_i[h*Outputs+32'(index_i)*BLEN+j],
                                        rises_i[(h*Outputs+32'(index_i)*BLEN+j)*10+:10],
                                        references_i[(h*Outputs+32'(index_i)*BLEN+j)*10+:10]};
      end
      delay #(.WIDTH(Heads * 21), .DEPTH(Leaves + j + Levels)) i_aside (
        .clk_i, .data_i(heads_aside), .data_o(heads_now)
      );
      valid_delay #(.DEPTH(Leaves + j + Levels - 1)) i_valid (
        .clk_i, .rst_ni, .valid_i(valid_i && (!one_row_i || index_i == '0)), .valid_o(adds_next)
      );
      logic adds_q, fresh_q, heads_q;
      logic [EntryBits-1:0] entry_q, read;
      assign read = drains_i ? drain_entry_i : entry_next[EntryBits-1:0];
      always_ff @(posedge clk_i or negedge rst_ni)
        if (!rst_ni) adds_q <= 1'b0;
        else adds_q <= adds_next;
      always_ff @(posedge clk_i) {heads_q, fresh_q, entry_q} <= entry_next;

      // Trees.
      logic [Heads*ACC-1:0] roots, roots_late;
      logic signed [ACC-1:0] root;
      for (genvar h = 0; h < Heads; h++) begin : g_head
        logic [PerHead*ACC-1:0] values;
        logic [PerHead*10-1:0] to_tile, to_heads;
        for (genvar k = 0; k < PerHead; k++) begin : g_leaf
          localparam int Sub = h * PerHead + k;
          localparam int Unit = Sub * BLEN / GROUP_HEADS;
          assign values[k*ACC+:ACC] = leaves[(Sub*BLEN+j)*ACC+:ACC];
          assign to_tile[10*k+:10] = tile_distances[10*Unit+:10];
          assign to_heads[10*k+:10] = heads_distances[10*Unit+:10];
        end
        join_tree #(
          .ACC(ACC), .GUARD(GUARD), .HEIGHT(HeadLevels), .ALIGN_TILE(AlignTile), .ALIGN_HEADS(AlignHeads)
        ) i_tree (
          .clk_i, .values_i(values), .tile_i(tile_aligns), .tile_distances_i(to_tile), .heads_i(heads_align),
          .heads_distances_i(to_heads), .value_o(roots[ACC*h+:ACC])
        );
      end
      logic [Banks*10-1:0] all_distances;
      for (genvar s = 0; s < Banks; s++) begin : g_distance
        localparam int Unit = s * BLEN / GROUP_HEADS;
        assign all_distances[10*s+:10] = tile_distances[10*Unit+:10];
      end
      join_tree #(
        .ACC(ACC), .GUARD(GUARD), .HEIGHT(Levels - HeadLevels), .BASE(HeadLevels), .ALIGN_TILE(AlignTile),
        .ALIGN_HEADS(-1), .LEAVES_DONE(1'b1)
      ) i_over_heads (
        .clk_i, .values_i(roots), .tile_i(tile_aligns), .tile_distances_i(all_distances), .heads_i(1'b0),
        .heads_distances_i(all_distances), .value_o(root)
      );
      delay #(.WIDTH(Heads * ACC), .DEPTH(Levels - HeadLevels)) i_roots (.clk_i, .data_i(roots), .data_o(roots_late));

      for (genvar h = 0; h < Heads; h++) begin : g_results
        logic nan;
        logic [9:0] rise, reference;
        assign {nan, rise, reference} = heads_now[21*h+:21];
        accumulators #(.ACC(ACC), .ENTRIES(Entries)) i_results (
          .clk_i, .read_i(read), .add_i(adds_q && (heads_q || h == 0)), .entry_i(entry_q), .fresh_i(fresh_q),
          .added_i(heads_q ? roots_late[ACC*h+:ACC] : root), .rise_i(rise), .reference_i(reference), .nan_i(nan),
          .value_o(values_o[(h*BLEN+j)*ACC+:ACC]), .reference_o(references_o[(h*BLEN+j)*10+:10]),
          .nan_o(nans_o[h*BLEN+j])
        );
      end
    end
  endgenerate

  generate
    if (GROUP_HEADS < BLEN || GROUP_TILE < GROUP_HEADS || HLEN < BLEN || BLEN < 2 || Banks < 2) begin : g_check
      $fatal(1, "a group needs at least BLEN terms, a head BLEN lanes, and MLEN two blocks of BLEN");
    end
  endgenerate
`ifndef SYNTHESIS
  logic adding;
  always_comb adding = g_column[0].adds_q;
  always_ff @(posedge clk_i) if (rst_ni) DrainsWhenIdle_A: assert (!(drains_i && adding));
`endif
endmodule
