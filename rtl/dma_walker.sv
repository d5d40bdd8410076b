// The bursts of a transfer, in order: rows, each with its elements and then its scales. A burst stays within a run of
// bytes and within 4 KiB of memory, and has at most 256 beats.
module dma_walker #(
  parameter int BEAT = 8,          // bytes
  parameter int RUN_BITS = 16      // bits of a run's length
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                start_i,
  input  logic                step_i,        // to the next burst
  input  logic [31:0]         rows_i,        // at least 1; this and the following do not change until the end
  input  logic                scaled_i,      // there are scales
  input  logic [63:0]         elements_i,    // addresses of row 0
  input  logic [63:0]         scales_i,
  input  logic [63:0]         element_stride_i,  // bytes from row to row
  input  logic [63:0]         scale_stride_i,
  input  logic [RUN_BITS-1:0] element_bytes_i,
  input  logic [RUN_BITS-1:0] scale_bytes_i,
  output logic                valid_o,
  output logic                scales_o,      // of the two runs of a row
  output logic [63:0]         run_o,         // its first byte
  output logic [RUN_BITS-1:0] bytes_o,       // its length
  output logic [63:0]         address_o,     // of the burst's first byte
  output logic [7:0]          beats_o,       // minus 1
  output logic                row_last_o     // of its row
);
  localparam int Offset = $clog2(BEAT);
  logic [31:0] left_q;  // rows, with this one
  logic [63:0] row_elements_q, row_scales_q, at_q;
  logic valid_q, stream_q;

  logic [63:0] run_end, page_end, burst_end, most_end;
  assign run_o = stream_q ? row_scales_q : row_elements_q;
  assign bytes_o = stream_q ? scale_bytes_i : element_bytes_i;
  assign run_end = run_o + 64'(bytes_o);
  assign page_end = {at_q[63:12] + 52'd1, 12'd0};
  assign most_end = {at_q[63:Offset], {Offset{1'b0}}} + 64'(256 * BEAT);
  always_comb begin
    burst_end = run_end;
    if (page_end < burst_end) burst_end = page_end;
    if (most_end < burst_end) burst_end = most_end;
  end
  logic [63:0] first_beat, last_beat;
  assign first_beat = at_q >> Offset;
  assign last_beat = (burst_end - 64'd1) >> Offset;
  assign beats_o = 8'(last_beat - first_beat);
  assign address_o = at_q;
  assign valid_o = valid_q;
  assign scales_o = stream_q;
  logic run_last;
  assign run_last = burst_end == run_end;
  assign row_last_o = run_last && (stream_q || !scaled_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) valid_q <= 1'b0;
    else if (start_i) valid_q <= 1'b1;
    else if (step_i && row_last_o && left_q == 32'd1) valid_q <= 1'b0;
  end
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      left_q <= rows_i;
      row_elements_q <= elements_i;
      row_scales_q <= scales_i;
      at_q <= elements_i;
      stream_q <= 1'b0;
    end else if (step_i) begin
      at_q <= burst_end;
      if (run_last && !row_last_o) begin
        at_q <= row_scales_q;
        stream_q <= 1'b1;
      end else if (row_last_o) begin
        at_q <= row_elements_q + element_stride_i;
        row_elements_q <= row_elements_q + element_stride_i;
        row_scales_q <= row_scales_q + scale_stride_i;
        left_q <= left_q - 32'd1;
        stream_q <= 1'b0;
      end
    end
  end
endmodule
