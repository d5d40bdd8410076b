// A processing element of the array: a product per cycle, added to the sum of the instruction's terms. With align_i
// every term is a group of its own and is shifted into the window below the output's reference first; without it the
// exact sum goes to the tree, which shifts it when its group is complete (join_tree.sv).
//
//   a, w --> * --> register --> << GUARD, >> distance, sticky --> + --> value
module array_cell #(
  parameter int A_WIDTH = 8,
  parameter int W_WIDTH = 4,
  parameter int ACC = 32,
  parameter int GUARD = 6
) (
  input  logic                      clk_i,
  input  logic                      first_i,  // term of a tile
  input  logic                      align_i,
  input  logic signed [A_WIDTH-1:0] a_i,
  input  logic        [7:0]         a_scale_i,
  input  logic                      a_zero_i, // its block holds only zeros, or a NaN
  input  logic signed [W_WIDTH-1:0] w_i,
  input  logic        [7:0]         w_scale_i,
  input  logic                      w_zero_i,
  input  logic signed [9:0]         reference_i,
  output logic signed [ACC-1:0]     value_o
);
  localparam int Product = A_WIDTH + W_WIDTH;
  logic signed [Product-1:0] product_q;
  logic [9:0] distance_q;
  logic first_q, align_q;
  always_ff @(posedge clk_i) begin
    product_q <= a_zero_i || w_zero_i ? '0 : Product'(a_i * w_i);
    distance_q <= reference_i - ($signed({2'b0, a_scale_i}) + $signed({2'b0, w_scale_i}) - 10'sd254);
    first_q <= first_i;
    align_q <= align_i;
  end

  logic signed [ACC-1:0] aligned, added;
  shift_sticky #(.WIDTH(ACC)) i_align (
    .value_i(ACC'(product_q) <<< GUARD), .distance_i(distance_q), .shifted_o(aligned)
  );
  assign added = align_q ? aligned : ACC'(product_q);
  always_ff @(posedge clk_i) value_o <= first_q ? added : value_o + added;
endmodule
