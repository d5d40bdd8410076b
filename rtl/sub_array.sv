// BLEN x BLEN processing elements that multiply BLEN terms of all outputs. Row i of the input enters i cycles later
// than row 0 and moves right, column j of the weights j cycles later and moves down; so does the control. A row of
// results leaves per cycle, column j after j more.
module sub_array #(
  parameter int BLEN = 4,
  parameter int A_WIDTH = 8,
  parameter int W_WIDTH = 4,
  parameter int ACC = 32,
  parameter int GUARD = 6,
  localparam int Rows = $clog2(BLEN)
) (
  input  logic                     clk_i,
  input  logic                     first_i,
  input  logic                     align_i,
  input  logic [BLEN*A_WIDTH-1:0]  a_i,          // term of every row
  input  logic [BLEN*8-1:0]        a_scales_i,
  input  logic [BLEN-1:0]          a_zeros_i,
  input  logic [BLEN*W_WIDTH-1:0]  w_i,          // term of every column
  input  logic [BLEN*8-1:0]        w_scales_i,
  input  logic [BLEN-1:0]          w_zeros_i,
  input  logic [BLEN*BLEN*10-1:0]  references_i, // of output (row, column), with the first term and until the last
  input  logic [Rows-1:0]          row_i,        // which leaves column 0
  output logic [BLEN*ACC-1:0]      values_o      // of that row, column j as it was j cycles ago
);
  /*verilator no_inline_module*/
  localparam int Across = A_WIDTH + 9;
  localparam int Down = W_WIDTH + 11;
  logic [BLEN*(BLEN+1)*Across-1:0] across;  // input of (row, column)
  logic [BLEN*(BLEN+1)*Down-1:0] down;      // input of (column, row)
  logic [BLEN*BLEN*ACC-1:0] values;         // (column, row)

  generate
    for (genvar i = 0; i < BLEN; i++) begin : g_skew
      delay #(.WIDTH(Across), .DEPTH(i)) i_row (
        .clk_i, .data_i({a_zeros_i[i], a_scales_i[8*i+:8], a_i[A_WIDTH*i+:A_WIDTH]}),
        .data_o(across[i*(BLEN+1)*Across+:Across])
      );
      delay #(.WIDTH(Down), .DEPTH(i)) i_column (
        .clk_i, .data_i({first_i, align_i, w_zeros_i[i], w_scales_i[8*i+:8], w_i[W_WIDTH*i+:W_WIDTH]}),
        .data_o(down[i*(BLEN+1)*Down+:Down])
      );
      logic [Rows-1:0] row;
      delay #(.WIDTH(Rows), .DEPTH(i)) i_leaves (.clk_i, .data_i(row_i), .data_o(row));
      assign values_o[ACC*i+:ACC] = values[(i*BLEN+32'(row))*ACC+:ACC];
    end
    for (genvar i = 0; i < BLEN; i++) begin : g_row
      for (genvar j = 0; j < BLEN; j++) begin : g_column
        localparam int Left = (i * (BLEN + 1) + j) * Across;
        localparam int Above = (j * (BLEN + 1) + i) * Down;
        logic [9:0] reference;
        delay #(.WIDTH(10), .DEPTH(i + j)) i_reference (
          .clk_i, .data_i(references_i[(i*BLEN+j)*10+:10]), .data_o(reference)
        );
        delay #(.WIDTH(Across)) i_right (.clk_i, .data_i(across[Left+:Across]), .data_o(across[Left+Across+:Across]));
        delay #(.WIDTH(Down)) i_below (.clk_i, .data_i(down[Above+:Down]), .data_o(down[Above+Down+:Down]));
        array_cell #(.A_WIDTH(A_WIDTH), .W_WIDTH(W_WIDTH), .ACC(ACC), .GUARD(GUARD)) i_cell (
          .clk_i, .first_i(down[Above+W_WIDTH+10]), .align_i(down[Above+W_WIDTH+9]), .a_i(across[Left+:A_WIDTH]),
          .a_scale_i(across[Left+A_WIDTH+:8]), .a_zero_i(across[Left+A_WIDTH+8]), .w_i(down[Above+:W_WIDTH]),
          .w_scale_i(down[Above+W_WIDTH+:8]), .w_zero_i(down[Above+W_WIDTH+8]), .reference_i(reference),
          .value_o(values[(j*BLEN+i)*ACC+:ACC])
        );
      end
    end
  endgenerate

  logic unused_edges;
  assign unused_edges = ^across ^ ^down;
endmodule
