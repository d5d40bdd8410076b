#include "base/host.h"

#include <fstream>

#include "base/os_process.h"

namespace dllm {

std::string cpu_name() {
  if (std::string name = processor_name(); !name.empty()) return name;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown";
}

}  // namespace dllm
