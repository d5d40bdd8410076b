// A column of the array: BLEN processing elements, one output each, for KLEN terms per instruction in MX formats.
// Weights move down the column a row per cycle; row i of the input enters i cycles later. After the last term a row's
// sum is aligned and added, then converted: these are the two cycles that the timing model counts after the skew. The
// drain reads a row per cycle.
module pe_column #(
  parameter int BLEN = 8,
  parameter int KLEN = 8,
  parameter int GROUP = 8,      // terms that share both scales
  parameter int ELEMENT_A = 1,  // as in mx_decode
  parameter int ELEMENT_W = 0,
  parameter int ACC = 32,
  parameter int GUARD = 6,
  parameter int FRACTION = 8,   // fraction bits of both elements together
  localparam int Groups = KLEN / GROUP,
  localparam int ABits = ELEMENT_A == 0 || ELEMENT_A == 2 ? 4 : ELEMENT_A == 3 || ELEMENT_A == 4 ? 6 : 8,
  localparam int WBits = ELEMENT_W == 0 || ELEMENT_W == 2 ? 4 : ELEMENT_W == 3 || ELEMENT_W == 4 ? 6 : 8,
  localparam int AWidth = ELEMENT_A == 0 ? 4 : ELEMENT_A == 1 ? 8 : ELEMENT_A == 2 ? 5 : ELEMENT_A == 3 ? 7
                                                  : ELEMENT_A == 4 ? 10 : 19,
  localparam int WWidth = ELEMENT_W == 0 ? 4 : ELEMENT_W == 1 ? 8 : ELEMENT_W == 2 ? 5 : ELEMENT_W == 3 ? 7
                                                  : ELEMENT_W == 4 ? 10 : 19
) (
  input  logic                      clk_i,
  input  logic                      rst_ni,
  input  logic                      valid_i,
  input  logic                      first_i,     // of an instruction; scales are read with it
  input  logic [BLEN*ABits-1:0]     a_i,         // term k of every row
  input  logic [BLEN*Groups*8-1:0]  a_scales_i,  // E8M0 of every row and group; 255: NaN
  input  logic [BLEN*Groups-1:0]    a_zeros_i,   // blocks without a one
  input  logic [WBits-1:0]          w_i,
  input  logic [Groups*8-1:0]       w_scales_i,
  input  logic [Groups-1:0]         w_zeros_i,
  output logic                      done_o,      // the last row of an instruction may be converted
  input  logic                      drain_i,     // row 0 is converted, then the others
  output logic                      valid_o,
  output logic [15:0]               bf16_o
);
  localparam int Count = $clog2(KLEN) + 1;
  localparam int Rows = $clog2(BLEN);
  localparam int GroupBits = Groups == 1 ? 1 : $clog2(Groups);
  logic [Count-1:0] term_q, term;
  assign term = first_i ? '0 : term_q;
  always_ff @(posedge clk_i) if (valid_i) term_q <= term + 1'b1;

  // Data that move down the column.
  localparam int Down = 5 + GroupBits + WBits + Groups * 9;
  logic [(BLEN+1)*Down-1:0] down;
  logic group_first, group_last, last;
  generate
    if (GROUP == 1) begin : g_single
      assign group_first = 1'b1;
      assign group_last = 1'b1;
    end else begin : g_group
      assign group_first = term[$clog2(GROUP)-1:0] == '0;
      assign group_last = term[$clog2(GROUP)-1:0] == '1;
    end
  endgenerate
  assign last = term == Count'(KLEN - 1);
  logic [GroupBits-1:0] group;
  assign group = GroupBits'(term >> $clog2(GROUP));
  assign down[Down-1:0] = {valid_i, first_i, group_first, group_last, last, group, w_i, w_scales_i, w_zeros_i};

  logic [BLEN*ACC-1:0] values;
  logic [BLEN*10-1:0] references;
  logic [BLEN-1:0] nans;
  logic [Rows-1:0] row_q, row;
  logic draining_q, converts;

  generate
    for (genvar r = 0; r < BLEN; r++) begin : g_row
      logic valid, first, start, finish, end_of_row;
      logic [GroupBits-1:0] at;
      logic [WBits-1:0] w_code;
      logic [Groups*8-1:0] w_scales;
      logic [Groups-1:0] w_zeros;
      assign {valid, first, start, finish, end_of_row, at, w_code, w_scales, w_zeros} = down[r*Down+:Down];

      // The input's skew.
      localparam int Across = ABits + Groups * 9;
      logic [ABits-1:0] a_code;
      logic [Groups*8-1:0] a_scales;
      logic [Groups-1:0] a_zeros;
      delay #(.WIDTH(Across), .DEPTH(r)) i_skew (
        .clk_i,
        .data_i({a_i[r*ABits+:ABits], a_scales_i[r*Groups*8+:Groups*8], a_zeros_i[r*Groups+:Groups]}),
        .data_o({a_code, a_scales, a_zeros})
      );

      // Scales of the instruction: arrive with the first term, then held.
      logic [Groups*8-1:0] a_scales_q, w_scales_q, a_now, w_now;
      logic [Groups-1:0] a_zeros_q, w_zeros_q, a_zero_now, w_zero_now;
      assign {a_now, w_now} = first ? {a_scales, w_scales} : {a_scales_q, w_scales_q};
      assign {a_zero_now, w_zero_now} = first ? {a_zeros, w_zeros} : {a_zeros_q, w_zeros_q};
      always_ff @(posedge clk_i)
        if (valid && first) {a_scales_q, w_scales_q, a_zeros_q, w_zeros_q} <= {a_scales, w_scales, a_zeros, w_zeros};

      logic any, nan, zero;
      logic signed [9:0] largest, exponent;
      always_comb begin
        any = 1'b0;
        nan = 1'b0;
        largest = '0;
        for (int g = 0; g < Groups; g++) begin
          if (a_now[8*g+:8] == 8'hff || w_now[8*g+:8] == 8'hff) nan = 1'b1;
          if (!a_zero_now[g] && !w_zero_now[g] && a_now[8*g+:8] != 8'hff && w_now[8*g+:8] != 8'hff) begin
            exponent = $signed({2'b0, a_now[8*g+:8]}) + $signed({2'b0, w_now[8*g+:8]}) - 10'sd254;
            if (!any || exponent > largest) largest = exponent;
            any = 1'b1;
          end
        end
        exponent = $signed({2'b0, a_now[8*(at)+:8]}) + $signed({2'b0, w_now[8*(at)+:8]}) - 10'sd254;
        zero = a_zero_now[at] || w_zero_now[at] || a_now[8*(at)+:8] == 8'hff ||
               w_now[8*(at)+:8] == 8'hff;
      end

      logic signed [AWidth-1:0] a;
      logic signed [WWidth-1:0] w;
      logic a_special, w_special;
      mx_decode #(.ELEMENT(ELEMENT_A)) i_a (.code_i(a_code), .fixed_o(a), .special_o(a_special));
      mx_decode #(.ELEMENT(ELEMENT_W)) i_w (.code_i(w_code), .fixed_o(w), .special_o(w_special));
      mx_pe #(.A_WIDTH(AWidth), .W_WIDTH(WWidth), .GROUP(GROUP), .ACC(ACC), .GUARD(GUARD)) i_pe (
        .clk_i, .rst_ni, .clear_i(converts && row == Rows'(r)), .valid_i(valid), .first_i(first), .group_first_i(start),
        .group_last_i(finish), .a_i(a), .w_i(w), .nan_i((first && nan) || a_special || w_special), .any_i(any),
        .largest_i(largest), .zero_i(zero), .exponent_i(exponent), .value_o(values[r*ACC+:ACC]),
        .reference_o(references[r*10+:10]), .nan_o(nans[r])
      );

      // Valid bits are reset; the other registers follow them.
      valid_delay #(.DEPTH(1)) i_valid (.clk_i, .rst_ni, .valid_i(valid), .valid_o(down[(r+2)*Down-1]));
      delay #(.WIDTH(Down - 1), .DEPTH(1)) i_down (
        .clk_i, .data_i(down[r*Down+:Down-1]), .data_o(down[(r+1)*Down+:Down-1])
      );
      if (r == BLEN - 1) begin : g_last
        valid_delay #(.DEPTH(2)) i_done (.clk_i, .rst_ni, .valid_i(valid && end_of_row), .valid_o(done_o));
      end else begin : g_inner
        logic unused_end;
        assign unused_end = end_of_row;
      end
    end
  endgenerate

  // Drain: one converter, a row per cycle.
  assign converts = drain_i || draining_q;
  assign row = drain_i ? '0 : row_q;
  logic [15:0] rounded;
  logic signed [9:0] reference;
  assign reference = references[10*row+:10];
  fixed_to_fp #(.WIDTH(ACC)) i_convert (
    .value_i(values[ACC*row+:ACC]), .exponent_i({{2{reference[9]}}, reference} - 12'(GUARD + FRACTION)),
    .fp_o(rounded)
  );
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      draining_q <= 1'b0;
      valid_o <= 1'b0;
    end else begin
      draining_q <= converts && row != Rows'(BLEN - 1);
      valid_o <= converts;
    end
  end
  always_ff @(posedge clk_i) begin
    row_q <= row + 1'b1;
    bf16_o <= nans[row] ? 16'h7fc0 : rounded;
  end

  logic unused_down;
  assign unused_down = &down[(BLEN+1)*Down-1:BLEN*Down];

`ifndef SYNTHESIS
  always_ff @(posedge clk_i)
    if (rst_ni) begin
      assert (!(drain_i && draining_q));
      assert (!(valid_i && first_i && term_q != Count'(KLEN) && term_q != '0));
    end
`endif
endmodule
