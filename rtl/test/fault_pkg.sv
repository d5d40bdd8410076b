package fault_pkg;
  import "DPI-C" function int dllm_fault();
endpackage
