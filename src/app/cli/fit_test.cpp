#include "app/cli/fit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/free_memory.h"
#include "base/testing/temp_dir.h"

namespace dllm::app {
namespace {

constexpr std::int64_t kGb = 1'000'000'000;

FitFacts facts(std::int64_t bytes, const char* name, std::int64_t free) {
  return {.bytes = bytes, .name = name, .free = free};
}

TEST(FitCheck, SaysWhetherAModelFits) {
  EXPECT_EQ(judge(facts(4 * kGb, "a-Q4_0.gguf", 8 * kGb)), Fit::kFits);
  EXPECT_EQ(judge(facts(4 * kGb, "a-Q4_0.gguf", 5 * kGb)), Fit::kTight);
  EXPECT_EQ(judge(facts(4 * kGb, "a-Q4_0.gguf", 4 * kGb)), Fit::kNot);
  EXPECT_EQ(judge({.bytes = 400 * kGb, .name = "", .free = {}}), Fit::kFits) << "nothing is known";
  EXPECT_EQ(fit_text(facts(4 * kGb, "a-Q4_0.gguf", 8 * kGb)),
            "4.00 GB on disk, 4.85 GB of memory needed, 8.00 GB free: fits");
}

/// What `ulimit -v` leaves: a gigabyte, of which the program has a tenth.
TEST(FitCheck, WordsFollowTheFreeMemory) {
  const test::TempDir root;
  const std::filesystem::path self = std::filesystem::path(root.path()) / "proc" / "self";
  std::filesystem::create_directories(self);
  std::ofstream(self.parent_path() / "meminfo") << "MemAvailable:   64000000 kB\n";
  std::ofstream(self / "status") << "VmSize:\t 100000 kB\n";
  std::ofstream(self / "limits") << "Max address space         1102400000           unlimited            bytes\n";
  const auto free = free_memory(std::filesystem::path(root.path()).string());
  ASSERT_EQ(free, kGb);
  constexpr std::int64_t kMb = 1'000'000;
  // 1.15 times as much and 250 MB are needed.
  for (const auto& [bytes, word] : {std::pair{kMb, "fits"},
                                    {478 * kMb, "fits"},
                                    {479 * kMb, "tight"},
                                    {652 * kMb, "tight"},
                                    {653 * kMb, "does not fit"}}) {
    const FitFacts one{.bytes = bytes, .name = "a-Q2_K.gguf", .free = free};
    EXPECT_EQ(fit_json(one)["fit"], word) << bytes;
    EXPECT_EQ(fit_json(one)["free_bytes"], kGb);
    EXPECT_NE(fit_text(one).find(std::string(" 1.00 GB free: ") + word), std::string::npos) << fit_text(one);
  }
}

TEST(FitCheck, NamesTheTypeThatWouldFit) {
  const std::string text = fit_text(facts(16 * kGb, "llada-8b-F16.gguf", 8 * kGb));
  EXPECT_NE(text.find(": does not fit; Q4_K_M takes about 4.85 GB"), text.npos) << text;
  for (const auto& [free, advice] : {std::pair{5, "; Q3_K_M takes about 4.00 GB"}, {4, "; Q2_K takes about 3.15 GB"}})
    EXPECT_NE(fit_text(facts(16 * kGb, "llada-8b-F16.gguf", free * kGb)).find(advice), std::string::npos) << advice;
  EXPECT_NE(fit_text(facts(16 * kGb, "x-bf16.gguf", 3 * kGb)).find("; take a smaller model"), std::string::npos);
  EXPECT_NE(fit_text(facts(16 * kGb, "x-Q4_K_M.gguf", 8 * kGb)).find("; take a smaller model"), std::string::npos);
}

TEST(FitCheck, ExpectsTheSlowerOfReadingAndComputing) {
  FitFacts one = facts(4 * kGb, "llada-8b-Q4_0.gguf", 20 * kGb);
  one.read_bytes_per_second = 40e9;
  EXPECT_NE(fit_text(one).find("about 10 passes"), std::string::npos);
  one.operations_per_second = 1e12;  // 4.5 bits a weight: 2 * 32 * 7.1e9 / 0.6e12 = 0.76 s
  EXPECT_NE(fit_text(one).find("about 1.3 passes"), std::string::npos) << fit_text(one);
  one.name = "unknown.gguf";
  EXPECT_NE(fit_text(one).find("about 10 passes"), std::string::npos);
}

}  // namespace
}  // namespace dllm::app
