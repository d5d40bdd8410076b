// BF16 to an unsigned key with the order of the numbers: zeros share a key, NaNs are beyond the infinities of their
// sign.
`include "fault.svh"
module order_key (
  input  logic [15:0] value_i,
  output logic [15:0] key_o
);
  logic negative_zero;
  assign negative_zero = value_i == 16'h8000 && !`FAULT(1);
  assign key_o = value_i[15] && !negative_zero ? ~value_i : {1'b1, value_i[14:0]};
endmodule
