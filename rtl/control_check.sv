// Whether C_SET_CSR must refuse a value: ranges of the control registers, as in the functional machine. Where the units
// have fixed formats, a format register accepts only its own; that of vectors with prec 0 also BF16.
module control_check #(
  parameter bit EXTERNAL = 0,
  parameter logic [159:0] FORMATS = '0,  // 32 bits each, from FORMAT_WEIGHT to FORMAT_MATRIX_INPUT; if EXTERNAL
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4
) (
  input  logic [17:0] csr_i,
  input  logic [31:0] value_i,
  output logic        known_o,  // there is such a register
  output logic        bad_o
);
  localparam int Heads = MLEN / HLEN;
  localparam logic [31:0] Bf16 = 32'd7;

  function automatic logic outside(input logic [31:0] value, input int low, input int high);
    outside = value < low || value > high;
  endfunction

  // {rule, log2 of the block, element}: mx_decode's elements, then E5M2, BF16, FP16, and GGML's Q4_0 and Q8_0.
  logic [31:0] own_format;
  assign own_format = FORMATS[32*(32'(csr_i[4:0])-32'(dllm_isa_pkg::CSR_FORMAT_WEIGHT))+:32];
  logic [3:0] element, log2_block;
  logic format_bad, scaled, packed_weight, block_bad;
  assign element = value_i[3:0];
  assign log2_block = value_i[7:4];
  assign scaled = element <= 4'd6;
  assign packed_weight = element == 4'd9 || element == 4'd10;
  assign block_bad = scaled ? log2_block < 4'd3 || log2_block > 4'd5
                            : log2_block != (packed_weight ? 4'd5 : 4'd0) || value_i[31:8] != 24'd0;
  assign format_bad = element > 4'd10 || value_i[31:8] > 24'd2 || block_bad || (32'd1 << log2_block) > MLEN ||
                      (packed_weight && csr_i != 18'(dllm_isa_pkg::CSR_FORMAT_WEIGHT));

  assign known_o = csr_i <= 18'(dllm_isa_pkg::CSR_DRAW_TOKENS);
  always_comb begin
    case (csr_i)
      18'(dllm_isa_pkg::CSR_PREFETCH_M_ROWS), 18'(dllm_isa_pkg::CSR_PREFETCH_V_ROWS),
      18'(dllm_isa_pkg::CSR_STORE_V_ROWS): bad_o = outside(value_i, 1, 1 << 24);
      18'(dllm_isa_pkg::CSR_BMM_ROWS), 18'(dllm_isa_pkg::CSR_BMM_COLS):
        bad_o = outside(value_i, BLEN, MLEN) || (value_i & (BLEN - 1)) != 32'd0;
      18'(dllm_isa_pkg::CSR_MM_ROWS): bad_o = outside(value_i, 1, BLEN);
      // It divides the number of heads, which is a power of two.
      18'(dllm_isa_pkg::CSR_BMM_GROUP): bad_o = !$onehot(value_i) || value_i > Heads;
      18'(dllm_isa_pkg::CSR_BMM_HEAD_STRIDE): bad_o = (value_i & (BLEN - 1)) != 32'd0;
      18'(dllm_isa_pkg::CSR_BMM_LAYOUT): bad_o = value_i > 32'd1;
      18'(dllm_isa_pkg::CSR_SEGMENT_LENGTH): bad_o = !$onehot(value_i) || value_i > VLEN;
      18'(dllm_isa_pkg::CSR_ROUTER_EXPERTS), 18'(dllm_isa_pkg::CSR_ROUTER_TOP): bad_o = outside(value_i, 1, VLEN);
      18'(dllm_isa_pkg::CSR_FORMAT_WEIGHT), 18'(dllm_isa_pkg::CSR_FORMAT_MATRIX_KV),
      18'(dllm_isa_pkg::CSR_FORMAT_VECTOR_KV), 18'(dllm_isa_pkg::CSR_FORMAT_MATRIX_INPUT):
        bad_o = EXTERNAL ? value_i != own_format : format_bad;
      18'(dllm_isa_pkg::CSR_FORMAT_ACTIVATION):
        bad_o = EXTERNAL ? value_i != own_format && value_i != Bf16 : format_bad;
      18'(dllm_isa_pkg::CSR_DRAW_PRECISION): bad_o = value_i > 32'd2;
      default: bad_o = 1'b0;  // the scale and what draws read may have any bits
    endcase
  end
endmodule
