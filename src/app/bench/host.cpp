#include "app/bench/host.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "app/bench/build_info.h"
#include "app/cli/report.h"
#include "base/host.h"
#include "base/os_memory.h"
#include "base/os_process.h"
#include "base/parse_text.h"
#include "base/thread_pool.h"
#include "base/utc.h"
#include "cpu/cpu_backend.h"
#include "dllm/version.h"

namespace dllm::app {
namespace {

std::string first_line(const char* path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// "VmHWM:   123 kB" of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return std::int64_t{1024} * std::atoll(line.c_str() + key.size());
  return 0;
}

/// "family 26 model 2 stepping 1": virtual machines often report the same name for all of a maker's processors.
std::string cpu_family() {
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const auto value = line.find(": ");
    for (const std::string key : {"cpu family\t", "model\t", "stepping\t"})
      if (line.starts_with(key) && value != std::string::npos)
        text += fmt::format("{}{} {}", text.empty() ? "" : " ",
                            key == "cpu family\t" ? "family" : key.substr(0, key.size() - 1), line.substr(value + 2));
  }
  return text;
}

}  // namespace

nlohmann::ordered_json host_json() {
  nlohmann::ordered_json isas = nlohmann::ordered_json::array();
  for (const CpuIsa& isa : cpu_isas())
    if (isa.available) isas.push_back(isa.name);
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  const std::string load = first_line("/proc/loadavg");
  return {{"cpu", cpu_name()},
          {"cpu_family", cpu_family()},
          {"cpus", default_thread_count()},
          {"memory_bytes", memory_size()},
          {"governor", governor.empty() ? "unknown" : governor},
          {"isas", isas},
          {"system", host_system().text()},
          {"load_average", parse_double(std::string_view(load).substr(0, load.find(' '))).value_or(0)}};
}

nlohmann::ordered_json build_json() {
  return {{"version", DLLM_VERSION}, {"compiler", kCompiler}, {"flags", kCompilerFlags}};
}

std::string utc_time() { return utc_text(static_cast<std::int64_t>(std::time(nullptr))); }

std::int64_t peak_resident_bytes() {
  const std::int64_t told = peak_resident_memory();
  return told > 0 ? told : status_bytes("VmHWM:");
}

void reset_peak_resident() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace dllm::app
