#include "base/cache_directory.h"

#include <cstdlib>
#include <filesystem>

#include "base/os_files.h"

namespace dllm {

namespace fs = std::filesystem;

std::string cache_directory() {
  const std::string folder = user_cache_folder();
  if (!folder.empty()) return (fs::path(folder) / "dllm").string();
  return cache_directory(std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
}

std::string cache_directory(const char* xdg_cache_home, const char* home) {
  // The XDG Base Directory Specification: relative paths are invalid and must be ignored.
  if (xdg_cache_home != nullptr && xdg_cache_home[0] == '/') return (fs::path(xdg_cache_home) / "dllm").string();
  if (home != nullptr && home[0] != '\0') return (fs::path(home) / ".cache" / "dllm").string();
  return {};
}

}  // namespace dllm
