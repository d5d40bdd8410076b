// The references of a tile: for every output the largest exponent of its groups, or the earlier one if that is larger.
// From them follow how far earlier sums move down (rise) and how far the groups of the transposed order are shifted
// (distances). References of all results are kept here, a word per tile of outputs, so that the next product needs not
// wait for the accumulators.
//
//   scales of rows, of columns --> + per sub-array --> max per head --> max over heads --+--> max --> references
//                                                                    stored word ------+
`include "assert.svh"
module matrix_references #(
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter int TILES = 16,        // of outputs that are kept
  parameter int UNIT = 4,          // lanes per distance
  localparam int Banks = MLEN / BLEN,
  localparam int Heads = MLEN / HLEN,
  localparam int PerHead = HLEN / BLEN,
  localparam int Units = MLEN / UNIT,
  localparam int Outputs = BLEN * BLEN,
  localparam int Bits = $clog2(TILES)
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,        // only for the assertion
  input  logic                        read_i,        // the stored word, in the cycle before start_i
  input  logic [Bits-1:0]             tile_i,
  input  logic                        start_i,
  input  logic                        fresh_i,       // the stored word is from before
  input  logic                        transposed_i,
  input  logic                        heads_i,
  input  logic [BLEN*Banks*10-1:0]    a_scales_i,    // {NaN, zero, scale} of (row, sub-array)
  input  logic [Banks*BLEN*10-1:0]    w_scales_i,    // of (sub-array, word)
  output logic [Heads*Outputs*10-1:0] references_o,  // of (head, row, column), from the cycle after start_i
  output logic [Heads*Outputs*10-1:0] rises_o,
  output logic [Heads*Outputs-1:0]    nans_o,
  output logic [Outputs*Units*10-1:0] distances_o    // of (row, column, unit)
);
  // Scales of (sub-array, column): in the plain order the largest of the words, which are the terms.
  logic [Banks*BLEN*8-1:0] largest_w;
  logic [Banks*BLEN-1:0] any_w, nan_w;
  always_comb begin
    for (int s = 0; s < Banks; s++)
      for (int j = 0; j < BLEN; j++) begin
        any_w[s*BLEN+j] = 1'b0;
        nan_w[s*BLEN+j] = 1'b0;
        largest_w[(s*BLEN+j)*8+:8] = '0;
        for (int x = 0; x < BLEN; x++)
          if (!transposed_i || x == j) begin
            if (w_scales_i[(s*BLEN+x)*10+9]) nan_w[s*BLEN+j] = 1'b1;
            if (w_scales_i[(s*BLEN+x)*10+8+:2] == 2'b00) begin
              any_w[s*BLEN+j] = 1'b1;
              if (w_scales_i[(s*BLEN+x)*10+:8] > largest_w[(s*BLEN+j)*8+:8])
                largest_w[(s*BLEN+j)*8+:8] = w_scales_i[(s*BLEN+x)*10+:8];
            end
          end
      end
  end

  logic [Heads*Outputs*11-1:0] stored_q[TILES];  // {held, reference}
  logic [Heads*Outputs*11-1:0] old_q, word;
  logic [Bits-1:0] tile_q;
  logic [Heads*Outputs*10-1:0] references, rises;
  logic [Heads*Outputs-1:0] nans;
  logic [Outputs*Units*10-1:0] distances;

  generate
    for (genvar i = 0; i < BLEN; i++) begin : g_row
      for (genvar j = 0; j < BLEN; j++) begin : g_column
        localparam int At = i * BLEN + j;
        logic [Banks*10-1:0] exponents;  // of the sub-arrays
        logic [Banks-1:0] is_any, is_nan;
        for (genvar s = 0; s < Banks; s++) begin : g_sub
          assign exponents[10*s+:10] = {2'b0, a_scales_i[(i*Banks+s)*10+:8]} + {2'b0, largest_w[(s*BLEN+j)*8+:8]} -
                                       10'd254;
          assign is_any[s] = a_scales_i[(i*Banks+s)*10+8+:2] == 2'b00 && any_w[s*BLEN+j];
          assign is_nan[s] = a_scales_i[(i*Banks+s)*10+9] || nan_w[s*BLEN+j];
        end
        logic [Heads*10-1:0] head_largest;
        logic [Heads-1:0] head_any, head_nan;
        logic [9:0] all_largest;
        always_comb begin
          all_largest = '0;
          head_largest = '0;
          head_any = '0;
          head_nan = '0;
          for (int h = 0; h < Heads; h++) begin
            for (int s = h * PerHead; s < (h + 1) * PerHead; s++) begin
              if (is_nan[s]) head_nan[h] = 1'b1;
              if (is_any[s] && (!head_any[h] || $signed(exponents[10*s+:10]) > $signed(head_largest[10*h+:10])))
                head_largest[10*h+:10] = exponents[10*s+:10];
              if (is_any[s]) head_any[h] = 1'b1;
            end
            if (head_any[h] && ((head_any & Heads'((1 << h) - 1)) == '0 ||
                                $signed(head_largest[10*h+:10]) > $signed(all_largest)))
              all_largest = head_largest[10*h+:10];
          end
        end
        for (genvar h = 0; h < Heads; h++) begin : g_head
          // Products over all lanes have one output, here as head 0; every sub-array needs its reference.
          localparam int Word = h * Outputs + At;
          logic held, any, rises_now;
          logic signed [9:0] largest, old, reference;
          assign any = heads_i ? head_any[h] : head_any != '0;
          assign largest = heads_i ? head_largest[10*h+:10] : all_largest;
          assign {held, old} = old_q[(heads_i ? Word : At)*11+:11] & {11{!fresh_i}};
          assign rises_now = any && (!held || largest > old);
          assign reference = rises_now ? largest : old;
          assign references[Word*10+:10] = reference;
          assign rises[Word*10+:10] = rises_now && held ? largest - old : '0;
          assign nans[Word] = heads_i ? head_nan[h] : head_nan != '0;
          assign word[Word*11+:11] = {held || any, reference};
        end
        for (genvar u = 0; u < Units; u++) begin : g_unit
          localparam int First = u * UNIT / BLEN;  // sub-array
          localparam int Head = u * UNIT / HLEN;
          assign distances[(At*Units+u)*10+:10] =
              references[(Head*Outputs+At)*10+:10] - ({2'b0, a_scales_i[(i*Banks+First)*10+:8]} +
                                                      {2'b0, w_scales_i[(First*BLEN+j)*10+:8]} - 10'd254);
        end
      end
    end
  endgenerate

  always_ff @(posedge clk_i) begin
    if (read_i) begin
      old_q <= stored_q[tile_i];
      tile_q <= tile_i;
    end
    if (start_i) begin
      stored_q[tile_q] <= word;
      references_o <= references;
      rises_o <= rises;
      nans_o <= nans;
      distances_o <= distances;
    end
  end

  `DLLM_ASSERT(a_no_read_while_written, !(read_i && start_i && tile_i == tile_q))
endmodule
