// Labelled assertions of clocked modules (clk_i, rst_ni), and checks of parameters that fail elaboration. A label names
// what holds, so that a failing run says which rule is broken.
`ifndef DLLM_ASSERT_SVH
`define DLLM_ASSERT_SVH
`ifdef SYNTHESIS
`define DLLM_ASSERT(label, condition)
`else
`define DLLM_ASSERT(label, condition) \
  always_ff @(posedge clk_i) if (rst_ni) label: assert (condition);
`endif
`define DLLM_CHECK_PARAMETER(label, condition) \
  generate if (!(condition)) begin : label $fatal(1, "parameter out of range"); end endgenerate
`endif
