#include "quant/partial_results.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "model/testing/hf_directory.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;
using test::TempDirectory;

struct Told {
  std::vector<std::string> lines;
  Log log() {
    return Log([this](LogLevel, const std::string& line) { lines.push_back(line); });
  }
};

void put(const PartialResults& results, std::string_view name, const std::string& text) {
  auto writer = results.create(name);
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(std::as_bytes(std::span(text))));
  ASSERT_TRUE(writer->commit());
}

TEST(PartialResults, AreFoundByTheSameRunOnly) {
  const TempDirectory directory;
  const std::string target = directory.file("model.gguf");
  Told told;
  std::string folder;
  {
    const auto first = PartialResults::open(target, 5, told.log());
    ASSERT_TRUE(first) << first.error().message();
    folder = first->folder();
    put(*first, "weight-1", "one");
    const auto second = PartialResults::open(target, 5, told.log());
    ASSERT_FALSE(second) << "two processes work in one folder";
    EXPECT_EQ(second.error().code, ErrorCode::kUsage);
    EXPECT_NE(second.error().what.find("another process"), std::string::npos);
    const auto other = PartialResults::open(target, 6, told.log());
    ASSERT_TRUE(other) << "other options, another folder";
    EXPECT_FALSE(other->find("weight-1"));
    EXPECT_TRUE(told.lines.empty()) << "the first run is alive";
  }
  const auto again = PartialResults::open(target, 5, told.log());
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->find("weight-1"));
  ASSERT_EQ(told.lines.size(), 1u) << "the run with other options is dead";
  EXPECT_NE(told.lines[0].find("0000000000000006.partial"), std::string::npos) << told.lines[0];
  fs::copy_file(folder + "/weight-1", folder + "/weight-2");
  EXPECT_FALSE(again->find("weight-2")) << "a file under another's name";
  EXPECT_FALSE(fs::exists(folder + "/weight-2"));
}

TEST(PartialResults, DamageIsToldAndRemoved) {
  const TempDirectory directory;
  Told told;
  auto results = PartialResults::open(directory.file("m"), 5, told.log());
  ASSERT_TRUE(results);
  put(*results, "activations-3", "numbers");
  const std::string path = results->folder() + "/activations-3";
  fs::resize_file(path, 0);
  fs::resize_file(path, 90);  // zeros
  EXPECT_FALSE(results->find("activations-3"));
  ASSERT_EQ(told.lines.size(), 1u);
  EXPECT_NE(told.lines[0].find("activations-3"), std::string::npos);
  EXPECT_FALSE(fs::exists(path));
  fs::create_directory(path);
  EXPECT_FALSE(results->find("activations-3"));
  EXPECT_FALSE(fs::exists(path));
  results->remove_all();
  EXPECT_FALSE(fs::exists(results->folder()));
  EXPECT_TRUE(PartialResults::open(directory.file("m"), 5, told.log())) << "the lock went with the folder";
}

TEST(PartialResults, OtherFilesBesideTheTargetAreNoRuns) {
  const TempDirectory directory;
  Told told;
  for (const char* name : {"m.partial", "m.00000000000000zz.partial", "n.0000000000000001.partial", "m.1.partial"})
    fs::create_directory(directory.file(name));
  EXPECT_TRUE(PartialResults::open(directory.file("m"), 5, told.log()));
  EXPECT_TRUE(told.lines.empty());
  fs::create_directory(directory.file("m.0000000000000001.partial"));  // an earlier version had no lock
  EXPECT_TRUE(PartialResults::open(directory.file("m"), 5, told.log()));
  EXPECT_EQ(told.lines.size(), 1u);
}

}  // namespace
}  // namespace dllm
