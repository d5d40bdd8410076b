// Control registers of the matrix and memory side: shapes, layout, scale, and the rows that transfers move. Formats are
// parameters of the hardware: their registers accept only those.
module matrix_registers #(
  parameter int VLEN = 16,
  parameter int MLEN = 16,
  parameter int BLEN = 4,
  parameter int HLEN = 4,
  parameter logic [31:0] FORMAT_WEIGHT = 0,  // as mx_number() of mx_formats.svh
  parameter logic [31:0] FORMAT_ACTIVATION = 0,
  parameter logic [31:0] FORMAT_VECTOR_KV = 0,
  parameter logic [31:0] FORMAT_INPUT = 0,
  parameter int PREFETCH_M_ROWS = MLEN,
  parameter int STORE_V_ROWS = 4,
  localparam int Heads = MLEN / HLEN,
  localparam int Count = $clog2(MLEN) + 1,
  localparam int HeadBits = $clog2(Heads) + 1
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                start_i,
  input  logic                set_i,
  input  logic [17:0]         number_i,
  input  logic [31:0]         value_i,
  output logic                bad_o,          // the value is not allowed: nothing is written
  output logic [31:0]         scale_o,        // of the heads' results
  output logic [31:0]         prefetch_rows_o,
  output logic [31:0]         store_rows_o,
  output logic [Count-1:0]    rows_o,         // bmm_rows
  output logic [Count-1:0]    cols_o,         // bmm_cols
  output logic [HeadBits-1:0] group_o,        // log2(bmm_group)
  output logic [31:0]         head_stride_o,
  output logic                side_by_side_o, // bmm_layout
  output logic [Count-1:0]    mm_rows_o
);
  logic [HeadBits-1:0] log2_value;
  logic power;
  assign power = value_i != 32'd0 && (value_i & (value_i - 32'd1)) == 32'd0;
  always_comb begin
    log2_value = '0;
    for (int i = 0; i <= $clog2(Heads); i++) if (value_i[i]) log2_value = HeadBits'(i);
  end
  logic rows_good, block_good;
  assign rows_good = value_i != 32'd0 && value_i <= 32'h01000000;
  assign block_good = value_i != 32'd0 && value_i <= 32'(MLEN) && value_i % 32'(BLEN) == 32'd0;
  always_comb begin
    case (number_i)
      18'(dllm_isa_pkg::CSR_BMM_SCALE): bad_o = 1'b0;
      18'(dllm_isa_pkg::CSR_PREFETCH_M_ROWS), 18'(dllm_isa_pkg::CSR_STORE_V_ROWS): bad_o = !rows_good;
      18'(dllm_isa_pkg::CSR_BMM_ROWS), 18'(dllm_isa_pkg::CSR_BMM_COLS): bad_o = !block_good;
      18'(dllm_isa_pkg::CSR_BMM_GROUP): bad_o = !power || value_i > 32'(Heads);
      18'(dllm_isa_pkg::CSR_BMM_HEAD_STRIDE): bad_o = value_i % 32'(BLEN) != 32'd0;
      18'(dllm_isa_pkg::CSR_BMM_LAYOUT): bad_o = value_i > 32'd1;
      18'(dllm_isa_pkg::CSR_MM_ROWS): bad_o = value_i == 32'd0 || value_i > 32'(BLEN);
      18'(dllm_isa_pkg::CSR_FORMAT_WEIGHT), 18'(dllm_isa_pkg::CSR_FORMAT_MATRIX_KV): bad_o = value_i != FORMAT_WEIGHT;
      18'(dllm_isa_pkg::CSR_FORMAT_ACTIVATION): bad_o = value_i != FORMAT_ACTIVATION;
      18'(dllm_isa_pkg::CSR_FORMAT_VECTOR_KV): bad_o = value_i != FORMAT_VECTOR_KV;
      18'(dllm_isa_pkg::CSR_FORMAT_MATRIX_INPUT): bad_o = value_i != FORMAT_INPUT;
      default: bad_o = 1'b1;
    endcase
  end

  task automatic reset_values();
    scale_o <= 32'h3f800000;
    prefetch_rows_o <= 32'(PREFETCH_M_ROWS);
    store_rows_o <= 32'(STORE_V_ROWS);
    rows_o <= Count'(MLEN);
    cols_o <= Count'(MLEN);
    group_o <= HeadBits'($clog2(Heads));
    head_stride_o <= 32'd0;
    side_by_side_o <= 1'b0;
    mm_rows_o <= Count'(BLEN);
  endtask
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) reset_values();
    else if (start_i) reset_values();
    else if (set_i && !bad_o)
      case (number_i)
        18'(dllm_isa_pkg::CSR_BMM_SCALE): scale_o <= value_i;
        18'(dllm_isa_pkg::CSR_PREFETCH_M_ROWS): prefetch_rows_o <= value_i;
        18'(dllm_isa_pkg::CSR_STORE_V_ROWS): store_rows_o <= value_i;
        18'(dllm_isa_pkg::CSR_BMM_ROWS): rows_o <= Count'(value_i);
        18'(dllm_isa_pkg::CSR_BMM_COLS): cols_o <= Count'(value_i);
        18'(dllm_isa_pkg::CSR_BMM_GROUP): group_o <= log2_value;
        18'(dllm_isa_pkg::CSR_BMM_HEAD_STRIDE): head_stride_o <= value_i;
        18'(dllm_isa_pkg::CSR_BMM_LAYOUT): side_by_side_o <= value_i[0];
        18'(dllm_isa_pkg::CSR_MM_ROWS): mm_rows_o <= Count'(value_i);
        default: ;
      endcase
  end

  generate
    if ((VLEN & (VLEN - 1)) != 0 || (MLEN & (MLEN - 1)) != 0 || (BLEN & (BLEN - 1)) != 0 ||
        (HLEN & (HLEN - 1)) != 0 || VLEN < MLEN || MLEN < HLEN) begin : g_check
      $fatal(1, "VLEN, MLEN, HLEN and BLEN must be powers of two, VLEN at least MLEN, MLEN at least HLEN");
    end
  endgenerate
endmodule
