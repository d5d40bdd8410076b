#include "eval/process_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace dllm {
namespace {

namespace fs = std::filesystem;

/// Resident pages are read quickly, but count shared ones for each process.
std::int64_t resident(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  std::int64_t size = 0, pages = 0;
  return file >> size >> pages ? pages * sysconf(_SC_PAGESIZE) : 0;
}

/// Walks the page tables: a few milliseconds per gigabyte.
std::int64_t proportional(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/smaps_rollup", process));
  std::int64_t kilobytes = 0;
  for (std::string word; file >> word;)
    if (word == "Pss:" && file >> kilobytes) return kilobytes << 10;
  return resident(process);
}

/// The process and its descendants, which may end or begin meanwhile.
std::vector<pid_t> processes_of(pid_t root) {
  std::vector<pid_t> all{root};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::error_code ended;
    for (fs::directory_iterator thread(fmt::format("/proc/{}/task", all[i]), ended), none; !ended && thread != none;
         thread.increment(ended)) {
      std::ifstream children(thread->path() / "children");
      for (pid_t child = 0; children >> child;) all.push_back(child);
    }
  }
  return all;
}

}  // namespace

/// The processes are read one after the other: the share of a page that another has just given up, by ending, is then
/// counted more than once. So only what several looks agree on counts.
bool processes_exceed(pid_t root, std::int64_t bytes) {
  constexpr int kLooks = 3;
  for (int look = 0; look < kLooks; ++look) {
    const std::vector<pid_t> all = processes_of(root);
    const auto sum = [&all](std::int64_t (*memory)(pid_t)) {
      return std::transform_reduce(all.begin(), all.end(), std::int64_t{0}, std::plus<>(), memory);
    };
    if (sum(resident) <= bytes || sum(proportional) <= bytes) return false;
  }
  return true;
}

}  // namespace dllm
