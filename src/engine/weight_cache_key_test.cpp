// What identifies the model that a weight cache belongs to: the sizes and times of all its files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/temp_dir.h"

#include "engine/load.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;

class WeightCacheKey : public ::testing::Test {
 protected:
  std::string file(const std::string& name, std::size_t size) const {
    std::ofstream(directory_ / name) << std::string(size, 'x');
    return written(name, 0);
  }
  /// As if it had been written so many nanoseconds after a certain second.
  std::string written(const std::string& name, long nanoseconds) const {
    const std::string path = (directory_ / name).string();
    const timespec times[2] = {{1'700'000'000, nanoseconds}, {1'700'000'000, nanoseconds}};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }
  static auto key(const std::string& model) {
    const SourceIdentity identity = source_identity(model);
    return std::pair(identity.size, identity.stamp);
  }

  test::TempDir temporary_;
  fs::path directory_ = temporary_.path();
};

TEST_F(WeightCacheKey, TellsTimesWithinASecondApart) {
  const std::string model = file("m.gguf", 100);
  const auto first = key(model);
  EXPECT_EQ(first.first, 100u);
  EXPECT_EQ(key(model), first);
  written("m.gguf", 1000);
  EXPECT_NE(key(model), first);
  file("m.gguf", 101);
  EXPECT_NE(key(model), first);
}

TEST_F(WeightCacheKey, CoversEveryPart) {
  const std::string model = file("m-00001-of-00002.gguf", 100);
  file("m-00002-of-00002.gguf", 50);
  const auto first = key(model);
  EXPECT_EQ(first.first, 150u);
  written("m-00002-of-00002.gguf", 1000);
  EXPECT_NE(key(model), first);
}

TEST_F(WeightCacheKey, CoversACheckpointsWeightsAndConfiguration) {
  for (const char* name : {"config.json", "a.safetensors", "b.safetensors", "README.md"}) file(name, 10);
  const auto first = key(directory_.string());
  EXPECT_EQ(first.first, 30u);
  for (const char* name : {"config.json", "a.safetensors", "b.safetensors"}) {
    written(name, 1000);
    EXPECT_NE(key(directory_.string()), first) << name;
    written(name, 0);
  }
  written("README.md", 1000);
  EXPECT_EQ(key(directory_.string()), first);
}

}  // namespace
}  // namespace dllm
