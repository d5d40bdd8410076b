// The order of V_SELECT_INT's elements. A target above a source that it overlaps needs the highest element first, one
// below it the lowest. Sources that need different orders are a conflict.
module select_order #(
  parameter int ADDRESS = 12
) (
  input  logic [ADDRESS-1:0] length_i,
  input  logic [ADDRESS-1:0] chosen_i,
  input  logic [ADDRESS-1:0] other_i,
  input  logic [ADDRESS-1:0] target_i,
  output logic               descending_o,
  output logic               conflict_o
);
  logic [ADDRESS-1:0] above_chosen, above_other, below_chosen, below_other;
  logic ascending;
  assign above_chosen = target_i - chosen_i;
  assign above_other = target_i - other_i;
  assign below_chosen = chosen_i - target_i;
  assign below_other = other_i - target_i;
  assign descending_o = (above_chosen != '0 && above_chosen < length_i) ||
                        (above_other != '0 && above_other < length_i);
  assign ascending = (below_chosen != '0 && below_chosen < length_i) || (below_other != '0 && below_other < length_i);
  assign conflict_o = descending_o && ascending;
endmodule
