// Runs the bodies of the fuzz targets over the corpus and over mutations of it, so that builds without a fuzzer also
// test what it once found.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "format/testing/fuzz_entry.h"
#include "format/testing/test_files.h"

namespace dllm {
namespace {

using Entry = void (*)(std::span<const std::byte>);

std::vector<std::string> corpus(const std::string& name) {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(DLLM_SOURCE_DIR "/fuzz/corpus/" + name))
    files.push_back(test::read_file(file.path()));
  std::ranges::sort(files);
  return files;
}

void replay(const std::string& name, Entry entry) {
  const std::vector<std::string> files = corpus(name);
  ASSERT_GT(files.size(), 5u);
  std::mt19937 random(3);
  for (const std::string& file : files) {
    entry(test::as_bytes(file));
    for (int round = 0; round < 300 && !file.empty(); ++round) {
      std::string mutated = file;
      for (unsigned edits = 1 + random() % 4; edits > 0; --edits)
        mutated[random() % mutated.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
      entry(test::as_bytes(mutated));
    }
  }
}

TEST(FuzzReplay, Gguf) { replay("gguf", fuzz_gguf); }
TEST(FuzzReplay, Npy) { replay("npy", fuzz_npy); }
TEST(FuzzReplay, Safetensors) { replay("safetensors", fuzz_safetensors); }

}  // namespace
}  // namespace dllm
