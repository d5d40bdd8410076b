// A queue of bytes between beats and rows: each cycle some leave at its front, and some come behind the others. Bytes
// beyond `count_o` of the front are those of no row.
module dma_bytes #(
  parameter int CAPACITY = 64,
  parameter int PUSH = 16,       // bytes that can come in a cycle
  parameter int POP = 16,        // that can leave
  localparam int Bits = $clog2(CAPACITY + 1)
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                clear_i,
  input  logic [Bits-1:0]     pop_i,    // at most count_o
  input  logic [Bits-1:0]     push_i,
  input  logic [8*PUSH-1:0]   data_i,
  output logic [Bits-1:0]     count_o,
  output logic [8*POP-1:0]    front_o
);
`include "assert.svh"
  logic [8*CAPACITY-1:0] bytes_q, shifted;
  logic [Bits-1:0] count_q, rest;
  assign rest = count_q - pop_i;
  assign shifted = bytes_q >> {pop_i, 3'b000};
  assign count_o = count_q;
  assign front_o = (8 * POP)'(bytes_q);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) count_q <= '0;
    else count_q <= clear_i ? '0 : rest + push_i;
  end
  always_ff @(posedge clk_i)
    for (int i = 0; i < CAPACITY; i++)
      if (pop_i != '0 || push_i != '0)
        bytes_q[8*i+:8] <= i < 32'(rest) || i >= 32'(rest) + PUSH ? shifted[8*i+:8] : data_i[8*(i-32'(rest))+:8];

  `DLLM_ASSERT(a_no_more_leave_than_there_are, pop_i <= count_q)
  `DLLM_ASSERT(a_no_byte_is_lost, 32'(rest) + 32'(push_i) <= CAPACITY)
endmodule
