// Rules of AXI4 for the master: what is valid stays as it is until it is accepted, a burst stays within 4 KiB, data end
// with their burst, and there are as many read bursts and write answers as were asked for.
module axi_checks #(
  parameter int BEAT = 8
) (
  input logic              clk_i,
  input logic              rst_ni,
  input logic              ar_valid_i,
  input logic              ar_ready_i,
  input logic [63:0]       ar_address_i,
  input logic [7:0]        ar_length_i,
  input logic              r_valid_i,
  input logic              r_ready_i,
  input logic              r_last_i,
  input logic              aw_valid_i,
  input logic              aw_ready_i,
  input logic [63:0]       aw_address_i,
  input logic [7:0]        aw_length_i,
  input logic              w_valid_i,
  input logic              w_ready_i,
  input logic [8*BEAT-1:0] w_data_i,
  input logic [BEAT-1:0]   w_strobe_i,
  input logic              w_last_i,
  input logic              b_valid_i,
  input logic              b_ready_i
);
`ifndef SYNTHESIS
  logic ar_waits_q, aw_waits_q, w_waits_q;
  logic [71:0] ar_q, aw_q;
  logic [9*BEAT:0] w_q;
  logic [15:0] reads_q, writes_q, answers_q, sent_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {ar_waits_q, aw_waits_q, w_waits_q} <= '0;
      {reads_q, writes_q, answers_q, sent_q} <= '0;
    end else begin
      ar_waits_q <= ar_valid_i && !ar_ready_i;
      aw_waits_q <= aw_valid_i && !aw_ready_i;
      w_waits_q <= w_valid_i && !w_ready_i;
      reads_q <= reads_q + 16'(ar_valid_i && ar_ready_i) - 16'(r_valid_i && r_ready_i && r_last_i);
      writes_q <= writes_q + 16'(aw_valid_i && aw_ready_i) - 16'(b_valid_i && b_ready_i);
      sent_q <= sent_q + 16'(w_valid_i && w_ready_i && w_last_i);
      answers_q <= answers_q + 16'(b_valid_i && b_ready_i);
    end
  end
  always_ff @(posedge clk_i) begin
    ar_q <= {ar_address_i, ar_length_i};
    aw_q <= {aw_address_i, aw_length_i};
    w_q <= {w_data_i, w_strobe_i, w_last_i};
  end
  function automatic logic in_page(input logic [63:0] address, input logic [7:0] length);
    in_page = (address & 64'd4095 & ~(64'(BEAT) - 64'd1)) + (64'(length) + 64'd1) * 64'(BEAT) <= 64'd4096;
  endfunction
  always_ff @(posedge clk_i)
    if (rst_ni) begin
      ArHolds_A: assert (!ar_waits_q || (ar_valid_i && ar_q == {ar_address_i, ar_length_i}));
      AwHolds_A: assert (!aw_waits_q || (aw_valid_i && aw_q == {aw_address_i, aw_length_i}));
      WHolds_A: assert (!w_waits_q || (w_valid_i && w_q == {w_data_i, w_strobe_i, w_last_i}));
      ArInPage_A: assert (!ar_valid_i || in_page(ar_address_i, ar_length_i));
      AwInPage_A: assert (!aw_valid_i || in_page(aw_address_i, aw_length_i));
      ReadAsked_A: assert (!r_valid_i || reads_q != 16'd0);
      WriteAsked_A: assert (!b_valid_i || writes_q != 16'd0);
      AnswerAfterData_A: assert (!b_valid_i || sent_q != answers_q);
    end
`else
  logic unused_bits;
  assign unused_bits = ^{clk_i, rst_ni, ar_valid_i, ar_ready_i, ar_address_i, ar_length_i, r_valid_i, r_ready_i,
                         r_last_i, aw_valid_i, aw_ready_i, aw_address_i, aw_length_i, w_valid_i, w_ready_i, w_data_i,
                         w_strobe_i, w_last_i, b_valid_i, b_ready_i};
`endif
endmodule
