#include "app/npu/npu.h"

namespace dllm::app {

std::unique_ptr<Verb> make_npu_isa();
std::unique_ptr<Verb> make_npu_asm();
std::unique_ptr<Verb> make_npu_disasm();
std::unique_ptr<Verb> make_npu_compile();
std::unique_ptr<Verb> make_npu_run();
std::unique_ptr<Verb> make_npu_trace();
std::unique_ptr<Verb> make_npu_step();
std::unique_ptr<Verb> make_npu_network();
std::unique_ptr<Verb> make_npu_sampling();
std::unique_ptr<Verb> make_npu_dram();
std::unique_ptr<Verb> make_npu_devices();
std::unique_ptr<Verb> make_npu_analyze();
std::unique_ptr<Verb> make_npu_sweep();
std::unique_ptr<Verb> make_npu_plan();
std::unique_ptr<Verb> make_npu_calibrate();

const std::vector<VerbEntry>& npu_verbs() {
  static const std::vector<VerbEntry> entries = {
      {"npu isa", "[OPTIONS] [MNEMONIC...]", "Print the instruction set", make_npu_isa},
      {"npu asm", "[OPTIONS] FILE.asm", "Assemble a program", make_npu_asm},
      {"npu disasm", "[OPTIONS] FILE", "Turn a program back into assembly", make_npu_disasm},
      {"npu compile", "[OPTIONS]", "Compile a denoising step of a model", make_npu_compile},
      {"npu run", "[OPTIONS] FILE", "Run a program on the functional machine", make_npu_run},
      {"npu trace", "[OPTIONS] FILE", "Simulate a program's time, with a trace for Perfetto", make_npu_trace},
      {"npu step", "[OPTIONS]", "Time a denoising step of a model", make_npu_step},
      {"npu network", "[OPTIONS] FILE", "Compile, time and compute a network from ONNX", make_npu_network},
      {"npu sampling", "[OPTIONS]", "Time the sampling phases of a denoising step", make_npu_sampling},
      {"npu dram", "[OPTIONS]", "Simulate the memory alone under streams or a trace", make_npu_dram},
      {"npu devices", "[OPTIONS] [NAME|FILE]", "List device profiles, or show one resolved", make_npu_devices},
      {"npu analyze", "[OPTIONS]", "Roofline, time and energy of a model on a device", make_npu_analyze},
      {"npu plan", "[OPTIONS]", "Place a step's tensors in a device's window of addresses", make_npu_plan},
      {"npu calibrate", "[OPTIONS]", "Fit a device profile to measured times", make_npu_calibrate},
      {"npu sweep", "[OPTIONS] SPEC.toml", "Evaluate a design space, with its Pareto front", make_npu_sweep},
  };
  return entries;
}

}  // namespace dllm::app
