// Shadow rows and branches on a Vulkan device: what holds of them on any backend, with the CPU's bits. The answers of
// decoders that need them are in vulkan_test.cpp.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "branch_properties.h"
#include "cpu/cpu_backend.h"
#include "random_model.h"
#include "shadow_properties.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

using test::RandomModel;

class VulkanRows : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_vulkan()) GTEST_SKIP() << vulkan_missing();
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) GTEST_SKIP() << "this machine has no Vulkan device";
  }

  /// Both backends of a random model.
  static std::pair<std::unique_ptr<CpuBackend>, std::unique_ptr<VulkanBackend>> both(const RandomModel& spec,
                                                                                     CpuKvType kv) {
    const std::shared_ptr<const Model> model = *Model::load(test::random_source(spec));
    const auto graph = [model](StepShape shape) { return model->build(shape); };
    CpuOptions here;
    here.threads = 1;
    here.kv = kv;
    here.arithmetic = CpuArithmetic::kExact;
    here.attention = CpuAttention::kF32;
    VulkanOptions there;
    there.threads = 1;
    there.kv = kv;
    auto vulkan = make_vulkan_backend(model->desc(), graph, model->weights(), there);
    EXPECT_TRUE(vulkan) << (vulkan ? "" : vulkan.error().message());
    return {*CpuBackend::create(model->desc(), graph, model->weights(), here), *std::move(vulkan)};
  }

  static void expect_the_cpus_bits(const RandomModel& spec, CpuKvType kv, std::int32_t block, bool shadows = true) {
    SCOPED_TRACE(std::string(spec.architecture) + " block " + std::to_string(block));
    const auto [cpu, vulkan] = both(spec, kv);
    if (shadows) {
      EXPECT_EQ(test::ShadowProperties(*vulkan, block, true).check(),
                test::ShadowProperties(*cpu, block, true).check());
    }
    EXPECT_EQ(test::BranchProperties(*vulkan, block).check(), test::BranchProperties(*cpu, block).check());
  }

  static constexpr ExpertsDesc kPooled = {.count = 12,
                                          .used = 4,
                                          .width = 32,
                                          .shared_width = 32,
                                          .score = GateScore::kSigmoid,
                                          .capacity = 6,
                                          .normalize = true};
};

TEST_F(VulkanRows, OfSeveralTypesOfCache) {
  const RandomModel llada{
      .architecture = "llada", .width = 64, .layers = 2, .heads = 2, .kv_heads = 2, .type = TensorType::kQ8_0};
  // Words of one number, of two, and of blocks with rotated keys; Mesa compiles its shaders for each.
  expect_the_cpus_bits(llada, CpuKvType::kF32, 0);
  expect_the_cpus_bits(llada, CpuKvType::kF16, 8);
  expect_the_cpus_bits(llada, CpuKvType::kQ4_0, 0);
}

TEST_F(VulkanRows, OfOtherArchitectures) {
  // Products with F32 weights take a processor's driver three times as long.
  const TensorType type = TensorType::kQ8_0;
  expect_the_cpus_bits({.architecture = "llada2", .type = type, .experts = kPooled}, CpuKvType::kF16, 32, false);
  // Layers with windows.
  expect_the_cpus_bits({.architecture = "diffusion-gemma", .layers = 2, .kv_heads = 2, .type = type}, CpuKvType::kF16,
                       8);
}

/// Experts that a block's rows share are chosen for shadow rows apart.
TEST_F(VulkanRows, ChooseExpertsApart) {
  const auto [cpu, vulkan] = both({.architecture = "llada2", .experts = kPooled}, CpuKvType::kF16);
  const auto logits = [](Backend& backend, const std::vector<ShadowRow>& shadows, bool scored) {
    const auto cache = *backend.make_cache(64);
    SequenceStep step{cache.get(), {}, {}, {}};
    for (Position p = 0; p < 32; ++p) step.plan.rows.push_back({p, (p * 7 + 3) % 80});
    step.plan.visible = {{0, 32}};
    step.plan.shadows = shadows;
    step.plan.scored = {30, 31};
    for (std::int32_t i = 0; scored && i < static_cast<std::int32_t>(shadows.size()); ++i)
      step.plan.scored.push_back(32 + i);
    step.request.logits = true;
    return (*backend.forward({&step, 1}))[0].logits;
  };
  std::vector<ShadowRow> many;
  for (Position p = 16; p < 32; ++p) many.push_back({{p, (p * 11) % 80}, {{0, 32}}});
  EXPECT_EQ(logits(*vulkan, many, false), logits(*vulkan, {}, false));
  EXPECT_EQ(logits(*vulkan, many, true), logits(*cpu, many, true));
}

}  // namespace
}  // namespace dllm
