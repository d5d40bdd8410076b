// The results of one column of one head: a window value, its reference and a NaN mark per output. An entry is read in
// the cycle before it is used. The value moves down by `rise` when the output's reference has risen.
module accumulators #(
  parameter int ACC = 32,
  parameter int ENTRIES = 16,
  localparam int Bits = $clog2(ENTRIES)
) (
  input  logic                  clk_i,
  input  logic [Bits-1:0]       read_i,
  input  logic                  add_i,       // to the entry requested a cycle ago
  input  logic [Bits-1:0]       entry_i,
  input  logic                  fresh_i,     // the first sum: what the entry holds is from before
  input  logic signed [ACC-1:0] added_i,
  input  logic [9:0]            rise_i,
  input  logic signed [9:0]     reference_i,
  input  logic                  nan_i,
  output logic signed [ACC-1:0] value_o,     // requested a cycle ago
  output logic signed [9:0]     reference_o,
  output logic                  nan_o
);
  /*verilator no_inline_module*/
  logic [ACC+10:0] entries_q[ENTRIES];
  logic [ACC+10:0] read_q;
  always_ff @(posedge clk_i) read_q <= entries_q[read_i];
  assign {nan_o, reference_o, value_o} = read_q;

  logic signed [ACC-1:0] kept;
  shift_sticky #(.WIDTH(ACC)) i_keep (.value_i(value_o), .distance_i(rise_i), .shifted_o(kept));
  always_ff @(posedge clk_i)
    if (add_i) entries_q[entry_i] <= {nan_i || (nan_o && !fresh_i), reference_i, (fresh_i ? '0 : kept) + added_i};
endmodule
