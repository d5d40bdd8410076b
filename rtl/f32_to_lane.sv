// The rounded result of a lane's FP32 operation: BF16, to nearest even, and every NaN becomes the positive quiet one.
module f32_to_lane (
  input  logic [31:0] value_i,
  output logic [15:0] lane_o
);
  logic [15:0] rounded;
  f32_to_bf16 i_round (.value_i, .bf16_o(rounded));
  assign lane_o = rounded[14:0] > 15'h7f80 ? 16'h7fc0 : rounded;
endmodule
