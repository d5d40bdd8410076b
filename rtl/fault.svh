// Fault injection, to test the tests: `FAULT(n) is constant 0 in the design. The co-simulation is built with
// DLLM_FAULTS and enables one fault at a time.
`ifndef DLLM_FAULT_SVH
`define DLLM_FAULT_SVH
`ifdef DLLM_FAULTS
`define FAULT(n) (fault_pkg::dllm_fault() == n)
`else
`define FAULT(n) 1'b0
`endif
`endif
