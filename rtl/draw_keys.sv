// Keys of draws in f registers: V_RED_DRAW keeps FP64 for the next one. Any other write to the register ends that.
module draw_keys (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        write_i,         // an f register gets FP32
  input  logic [2:0]  register_i,
  input  logic        key_write_i,     // one gets a key; it wins if both are the same
  input  logic [2:0]  key_register_i,  // and is read
  input  logic [63:0] key_i,
  input  logic [31:0] value_i,         // FP32 of key_register_i
  output logic [63:0] running_o,       // its value as FP64
  output logic [31:0] narrow_o         // key_i as other readers see it
);
  logic [63:0] key_q[8], wide;
  logic [7:0] is_key_q;
  f32_widen i_widen (.value_i, .wide_o(wide));
  f64_narrow #(.MAN(23)) i_narrow (.value_i(key_i), .narrow_o);
  assign running_o = is_key_q[key_register_i] ? key_q[key_register_i] : wide;
  always_ff @(posedge clk_i or negedge rst_ni)
    if (!rst_ni) begin
      is_key_q <= '0;
    end else begin
      if (write_i) is_key_q[register_i] <= 1'b0;
      if (key_write_i) is_key_q[key_register_i] <= 1'b1;
    end
  always_ff @(posedge clk_i) if (key_write_i) key_q[key_register_i] <= key_i;
endmodule
