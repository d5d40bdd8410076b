// Writes the arguments for Verilator with which core.sv is the hardware of a device profile.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "answer/core_parameters.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: dllm_rtl_parameters DEVICE FILE [KEY=VALUE...]\n");
    return 2;
  }
  std::vector<dllm::npu::Override> overrides;
  for (int i = 3; i < argc; ++i) {
    const auto parsed = dllm::npu::parse_override(argv[i]);
    if (!parsed) {
      std::fprintf(stderr, "error: %s\n", parsed.error().message().c_str());
      return 2;
    }
    overrides.push_back(*parsed);
  }
  const auto parameters = dllm::rtl::core_parameters(argv[1], overrides);
  if (!parameters) {
    std::fprintf(stderr, "error: %s\n", parameters.error().message().c_str());
    return 1;
  }
  std::ofstream file(argv[2]);
  for (const std::string& parameter : parameters->verilog) file << "-G" << parameter << '\n';
  file.flush();
  if (!file) {
    std::fprintf(stderr, "error: %s cannot be written\n", argv[2]);
    return 1;
  }
  return 0;
}
