// The bursts of a transfer, in order. Rows are moved by groups: the scales of a group, then its elements
// (`scales_first_i`), or the elements first. Rows whose bytes follow each other are one run of bytes. A burst stays
// within a run and within 4 KiB of memory, and has at most 256 beats.
//
//   GROUP 4, scales_first_i:   ssss eeee ssss eeee   rows follow each other: a run each
//                              ssss e e e e          elements STRIDE_REG apart
`include "assert.svh"
module dma_walker #(
  parameter int BEAT = 8,          // bytes
  parameter int GROUP = 16,        // rows
  parameter int ROW_BITS = 8,      // bits of a row's bytes
  localparam int RunBits = ROW_BITS + $clog2(GROUP) + 1
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                start_i,
  input  logic                step_i,        // to the next burst
  input  logic [31:0]         rows_i,        // at least 1; this and the following do not change until the end
  input  logic                scaled_i,      // there are scales
  input  logic                scales_first_i,
  input  logic [63:0]         elements_i,    // addresses of row 0
  input  logic [63:0]         scales_i,
  input  logic [63:0]         element_stride_i,  // bytes from row to row
  input  logic [63:0]         scale_stride_i,
  input  logic [ROW_BITS-1:0] element_bytes_i,   // of a row
  input  logic [ROW_BITS-1:0] scale_bytes_i,
  output logic                valid_o,
  output logic                scales_o,      // of the two streams
  output logic [63:0]         run_o,         // its first byte
  output logic [RunBits-1:0]  bytes_o,       // its length
  output logic [63:0]         address_o,     // of the burst's first byte
  output logic [7:0]          beats_o        // minus 1
);
  localparam int Offset = $clog2(BEAT);
  localparam int GroupBits = $clog2(GROUP) + 1;
  logic [31:0] left_q;  // rows, with this group
  logic [GroupBits-1:0] group, rows_q, run_rows;  // rows of the group; that are left of this stream; of the run
  logic [63:0] elements_q, scales_q, at_q;        // of the streams' runs; of the burst
  logic valid_q, second_q;

  function automatic logic [GroupBits-1:0] first_rows(input logic [31:0] left);
    first_rows = left < 32'(GROUP) ? GroupBits'(left) : GroupBits'(GROUP);
  endfunction
  logic in_scales, joined;
  logic [ROW_BITS-1:0] row_bytes;
  assign in_scales = scaled_i && second_q != scales_first_i;
  assign joined = in_scales ? scale_stride_i == 64'(scale_bytes_i) : element_stride_i == 64'(element_bytes_i);
  assign row_bytes = in_scales ? scale_bytes_i : element_bytes_i;
  assign group = first_rows(left_q);
  assign run_rows = joined ? rows_q : GroupBits'(1);

  logic [63:0] run_end, page_end, burst_end, most_end, next_run, next_elements, next_scales;
  assign run_o = in_scales ? scales_q : elements_q;
  assign bytes_o = RunBits'(row_bytes) * RunBits'(run_rows);
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
  assign scales_o = in_scales;

  logic run_last, stream_last, group_last, last;
  assign run_last = burst_end == run_end;
  assign stream_last = run_rows == rows_q;
  assign group_last = stream_last && (second_q || !scaled_i);
  assign last = group_last && left_q == 32'(group);
  assign next_run = joined ? run_end : run_o + (in_scales ? scale_stride_i : element_stride_i);
  assign next_elements = in_scales ? elements_q : next_run;
  assign next_scales = in_scales ? next_run : scales_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) valid_q <= 1'b0;
    else if (start_i) valid_q <= 1'b1;
    else if (step_i && run_last && last) valid_q <= 1'b0;
  end
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      left_q <= rows_i;
      rows_q <= first_rows(rows_i);
      elements_q <= elements_i;
      scales_q <= scales_i;
      at_q <= scaled_i && scales_first_i ? scales_i : elements_i;
      second_q <= 1'b0;
    end else if (step_i && !run_last) begin
      at_q <= burst_end;
    end else if (step_i) begin
      elements_q <= next_elements;
      scales_q <= next_scales;
      if (!stream_last) begin
        at_q <= next_run;
        rows_q <= rows_q - run_rows;
      end else if (!group_last) begin  // the other stream
        at_q <= in_scales ? next_elements : next_scales;
        rows_q <= group;
        second_q <= 1'b1;
      end else begin
        at_q <= scaled_i && scales_first_i ? next_scales : next_elements;
        rows_q <= first_rows(left_q - 32'(group));
        left_q <= left_q - 32'(group);
        second_q <= 1'b0;
      end
    end
  end

  `DLLM_ASSERT(a_rows_are_left, !valid_q || (rows_q != '0 && rows_q <= group && left_q != 32'd0))
endmodule
