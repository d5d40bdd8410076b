#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace dllm::test {

/// Folder with reference data that is too large or not licensed for the repository; empty if not on this machine.
inline std::string shared_data() {
  const char* from_environment = std::getenv("DLLM_SHARED_DATA");
  const std::string path = from_environment ? from_environment : DLLM_SOURCE_DIR "/../shared/data";
  return std::filesystem::is_directory(path) ? path : std::string();
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace dllm::test

/// Skips the test, and says so, if the shared data is absent.
#define DLLM_REQUIRE_SHARED_DATA(path)                \
  const std::string path = dllm::test::shared_data(); \
  if (path.empty()) GTEST_SKIP() << "extra test: needs the shared data (set DLLM_SHARED_DATA)"
