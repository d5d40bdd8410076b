#include "base/free_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/os_memory.h"

namespace dllm {
namespace {

/// The number in a file of one line; nullopt: there is no such file, or it says "max".
std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// Bytes of a line such as "MemAvailable:  8000000 kB".
std::optional<std::int64_t> bytes_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kibibytes = 0;
    if (words >> key >> kibibytes && key == name) return kibibytes * 1024;
  }
  return std::nullopt;
}

void keep_less(std::optional<std::int64_t>& least, std::int64_t bytes) {
  least = std::min(least.value_or(bytes), std::max<std::int64_t>(bytes, 0));
}

/// What a group and those around it leave. File pages count as used there, and are given up where memory is short.
void keep_limits(const std::string& mount, std::string group, const char* limit, const char* used,
                 std::optional<std::int64_t>& least) {
  for (;;) {
    const std::string folder = mount + group;
    if (const auto most = number_in(folder + "/" + limit)) {
      std::int64_t pages = 0;
      std::ifstream stat(folder + "/memory.stat");
      std::string key;
      for (std::int64_t bytes = 0; stat >> key >> bytes;)
        if (key == "inactive_file" || key == "active_file") pages += bytes;
      keep_less(least, *most - std::max<std::int64_t>(number_in(folder + "/" + used).value_or(0) - pages, 0));
    }
    const std::size_t last = group.rfind('/');
    if (last == group.npos) return;
    group.erase(last);
  }
}

/// What `ulimit -v` leaves: a mapped file takes address space as well.
void keep_address_space(const std::string& root, std::optional<std::int64_t>& least) {
  constexpr std::string_view kName = "Max address space";
  std::ifstream file(root + "/proc/self/limits");
  for (std::string line; std::getline(file, line);) {
    std::int64_t most = 0;
    if (line.starts_with(kName) && std::istringstream(line.substr(kName.size())) >> most)
      keep_less(least, most - bytes_in(root + "/proc/self/status", "VmSize:").value_or(0));
  }
}

}  // namespace

std::optional<std::int64_t> free_memory(const std::string& root) {
  std::optional<std::int64_t> least = available_memory();
  if (!least) least = bytes_in(root + "/proc/meminfo", "MemAvailable:");
  keep_address_space(root, least);
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice", or "4:memory:/docker/abc"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (kinds.empty()) keep_limits(root + "/sys/fs/cgroup", group, "memory.max", "memory.current", least);
    if (("," + kinds + ",").find(",memory,") != std::string::npos)
      keep_limits(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes", "memory.usage_in_bytes", least);
  }
  return least;
}

}  // namespace dllm
