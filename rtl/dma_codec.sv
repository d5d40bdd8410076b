// A row of lanes from the codes and scales of a transfer, and back. BYTES is the room for codes, of which the format
// may use fewer.
module dma_codec #(
  parameter int VLEN = 16,
  parameter int BYTES = 32,
  parameter int ELEMENT = 7,
  parameter int RULE = 0,
  parameter int BLOCK = 1,
  localparam int Most = VLEN / 8,
  localparam int Bits = ELEMENT == 7 ? 16 : ELEMENT == 0 || ELEMENT == 2 ? 4 : ELEMENT == 3 || ELEMENT == 4 ? 6 : 8
) (
  input  logic [8*BYTES-1:0]  codes_i,
  input  logic [8*Most-1:0]   scales_i,
  output logic [16*VLEN-1:0]  lanes_o,
  input  logic [16*VLEN-1:0]  lanes_i,
  output logic [8*BYTES-1:0]  codes_o,
  output logic [8*Most-1:0]   scales_o
);
  generate
    for (genvar i = 0; i < VLEN; i++) begin : g_lane
      mx_to_bf16 #(.ELEMENT(ELEMENT), .RULE(RULE)) i_decode (
        .code_i(codes_i[Bits*i+:Bits]), .scale_i(scales_i[8*(ELEMENT==7?0:i/BLOCK)+:8]), .bf16_o(lanes_o[16*i+:16])
      );
    end
    if (ELEMENT == 7) begin : g_copy
      assign codes_o = (8 * BYTES)'(lanes_i);
      assign scales_o = '0;
    end else begin : g_encode
      logic [VLEN*Bits-1:0] codes;
      logic [VLEN/BLOCK*8-1:0] scales;
      for (genvar b = 0; b < VLEN / BLOCK; b++) begin : g_block
        logic zero, nan;
        mx_encode #(.ELEMENT(ELEMENT), .RULE(RULE), .BLOCK(BLOCK)) i_encode (
          .lanes_i(lanes_i[16*BLOCK*b+:16*BLOCK]), .codes_o(codes[Bits*BLOCK*b+:Bits*BLOCK]),
          .scale_o(scales[8*b+:8]), .zero_o(zero), .nan_o(nan)
        );
        logic unused_marks;
        assign unused_marks = zero ^ nan;
      end
      assign codes_o = (8 * BYTES)'(codes);
      assign scales_o = (8 * Most)'(scales);
    end
  endgenerate

  logic unused_bytes;
  assign unused_bytes = ^codes_i ^ ^scales_i;
endmodule
