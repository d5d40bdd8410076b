#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace dllm::test {

inline std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// A file of src/text/testdata/; a missing one is a failure.
inline std::string testdata(const std::string& name) {
  const auto path = std::filesystem::path(DLLM_SOURCE_DIR) / "src/text/testdata" / name;
  auto text = read_file(path);
  EXPECT_TRUE(text.has_value()) << path;
  return text.value_or("");
}

/// A data file that is not part of the repository (vocabularies of published models): in $DLLM_SHARED_DATA, or else
/// next to the checkout. nullopt: the test should be skipped.
inline std::optional<std::string> shared_data(const std::string& name) {
  const char* root = std::getenv("DLLM_SHARED_DATA");
  const auto directory =
      root != nullptr ? std::filesystem::path(root) : std::filesystem::path(DLLM_SOURCE_DIR) / "../shared/data";
  return read_file(directory / name);
}

}  // namespace dllm::test

#define DLLM_SKIP_WITHOUT(data) \
  if (!(data).has_value()) GTEST_SKIP() << "needs the shared data: set DLLM_SHARED_DATA"
