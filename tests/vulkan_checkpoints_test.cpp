// Checkpoints with what random models lack, on a Vulkan device as a whole: modes, drafts that the model checks, a
// region of its own with mixtures, routes by block. Logits and answers have the bits of the CPU backend's.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dllm/model.h"
#include "golden_model.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

class VulkanCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_vulkan()) GTEST_SKIP() << vulkan_missing();
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) GTEST_SKIP() << "this machine has no Vulkan device";
  }

  /// Answers on both backends with each of the options.
  static void expect_same(const test::GoldenModel& golden, const std::vector<GenerateOptions>& all) {
    LoadOptions options;
    options.threads = 1;
    const auto here = LanguageModel::load(golden.path(), options);
    options.backend = "vulkan";
    const auto there = LanguageModel::load(golden.path(), options);
    ASSERT_TRUE(here && there) << there.error().message();
    EXPECT_EQ(*there->logits(golden.ids(), false), *here->logits(golden.ids(), false));
    for (const GenerateOptions& how : all) {
      SCOPED_TRACE(how.mode.name + " " + how.cache.name);
      const auto expected = here->generate_ids(golden.ids(), how), actual = there->generate_ids(golden.ids(), how);
      ASSERT_TRUE(expected && actual) << actual.error().message();
      EXPECT_EQ(actual->ids, expected->ids);
      EXPECT_EQ(actual->confidence, expected->confidence);
      EXPECT_EQ(actual->commit_step, expected->commit_step);
      EXPECT_EQ(actual->stats.nfe, expected->stats.nfe);
    }
  }
};

GenerateOptions of_length(std::int32_t length) {
  GenerateOptions how;
  how.length = length;
  return how;
}

TEST_F(VulkanCheckpoints, EveryModeOfNemotron) {
  std::vector<GenerateOptions> all;
  for (const char* mode : {"ar", "diffusion", "self-speculation"}) {
    all.push_back(of_length(16));
    all.back().mode.name = mode;
  }
  expect_same(test::GoldenModel("nemotron"), all);
}

TEST_F(VulkanCheckpoints, TwoRegionsAndMixtures) { expect_same(test::GoldenModel("diffusion-gemma"), {of_length(12)}); }

TEST_F(VulkanCheckpoints, RoutesByBlock) {
  std::vector<GenerateOptions> all = {of_length(12), of_length(12)};
  all[1].cache.name = "dual";
  expect_same(test::GoldenModel("llada2.2"), all);
}

}  // namespace
}  // namespace dllm
