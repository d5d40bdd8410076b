// FP32 to BF16, to nearest even. A NaN keeps its upper bits and becomes quiet.
module f32_to_bf16 (
  input  logic [31:0] value_i,
  output logic [15:0] bf16_o
);
  logic up;
  assign up = value_i[15] && (value_i[14:0] != 15'd0 || value_i[16]);
  assign bf16_o = value_i[30:0] > 31'h7f800000 ? value_i[31:16] | 16'h0040 : value_i[31:16] + {15'b0, up};
endmodule
