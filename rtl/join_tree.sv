// Adds the values of 2^HEIGHT sub-arrays, a level per cycle. Exact sums are shifted into the window at the level where
// their group is complete: ALIGN_TILE for products over all lanes, ALIGN_HEADS for those of a head. BASE is the level
// of the values here, 0 for sub-arrays. Distances come with the values of their level, one per sub-array.
module join_tree #(
  parameter int ACC = 32,
  parameter int GUARD = 6,
  parameter int HEIGHT = 2,
  parameter int BASE = 0,
  parameter int ALIGN_TILE = 1,
  parameter int ALIGN_HEADS = 1,
  parameter bit LEAVES_DONE = 0,  // another tree has shifted them
  localparam int Leaves = 1 << HEIGHT
) (
  input  logic                      clk_i,
  input  logic [Leaves*ACC-1:0]     values_i,
  input  logic                      tile_i,
  input  logic [(Leaves << BASE)*10-1:0] tile_distances_i,
  input  logic                      heads_i,
  input  logic [(Leaves << BASE)*10-1:0] heads_distances_i,
  output logic signed [ACC-1:0]     value_o
);
  localparam int Level = BASE + HEIGHT;
  logic signed [ACC-1:0] sum;

  generate
    if (HEIGHT == 0) begin : g_leaf
      assign sum = values_i;
      logic unused_clock;
      assign unused_clock = clk_i;
    end else begin : g_node
      localparam int Half = Leaves / 2;
      localparam int Distances = (Half << BASE) * 10;
      logic signed [ACC-1:0] left, right, sum_q;
      join_tree #(
        .ACC(ACC), .GUARD(GUARD), .HEIGHT(HEIGHT - 1), .BASE(BASE), .ALIGN_TILE(ALIGN_TILE),
        .ALIGN_HEADS(ALIGN_HEADS), .LEAVES_DONE(LEAVES_DONE)
      ) i_left (
        .clk_i, .values_i(values_i[Half*ACC-1:0]), .tile_i, .tile_distances_i(tile_distances_i[Distances-1:0]),
        .heads_i, .heads_distances_i(heads_distances_i[Distances-1:0]), .value_o(left)
      );
      join_tree #(
        .ACC(ACC), .GUARD(GUARD), .HEIGHT(HEIGHT - 1), .BASE(BASE), .ALIGN_TILE(ALIGN_TILE),
        .ALIGN_HEADS(ALIGN_HEADS), .LEAVES_DONE(LEAVES_DONE)
      ) i_right (
        .clk_i, .values_i(values_i[Leaves*ACC-1:Half*ACC]), .tile_i,
        .tile_distances_i(tile_distances_i[2*Distances-1:Distances]), .heads_i,
        .heads_distances_i(heads_distances_i[2*Distances-1:Distances]), .value_o(right)
      );
      always_ff @(posedge clk_i) sum_q <= left + right;
      assign sum = sum_q;
    end

    if ((Level == ALIGN_TILE || Level == ALIGN_HEADS) && !(HEIGHT == 0 && LEAVES_DONE)) begin : g_align
      logic tile, heads;
      logic signed [ACC-1:0] aligned;
      assign tile = tile_i && Level == ALIGN_TILE;
      assign heads = heads_i && Level == ALIGN_HEADS;
      shift_sticky #(.WIDTH(ACC)) i_align (
        .value_i(sum <<< GUARD), .distance_i(tile ? tile_distances_i[9:0] : heads_distances_i[9:0]),
        .shifted_o(aligned)
      );
      assign value_o = tile || heads ? aligned : sum;
    end else begin : g_pass
      assign value_o = sum;
    end
  endgenerate

  logic unused_control;
  assign unused_control = tile_i ^ heads_i ^ ^tile_distances_i ^ ^heads_distances_i;
endmodule
