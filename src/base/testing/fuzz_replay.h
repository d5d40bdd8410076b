#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace dllm::test {

/// Runs the body of the fuzz target `name` over its corpus, each file unchanged and with `mutations` random changes, so
/// that builds without a fuzzer also test what it once found. For tests only.
template <class Entry>
void replay_corpus(const std::string& name, int mutations, Entry entry) {
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(DLLM_SOURCE_DIR "/fuzz/corpus/" + name))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  ASSERT_GT(files.size(), 4u);
  std::mt19937 random(3);
  for (const auto& path : files) {
    SCOPED_TRACE(path);
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (int round = 0; round <= mutations; ++round) {
      std::string mutated = text;
      if (round > 0 && !text.empty())
        for (unsigned edits = 1 + random() % 4; edits > 0; --edits)
          mutated[random() % mutated.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
      entry(std::string_view(mutated));
    }
  }
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace dllm::test
