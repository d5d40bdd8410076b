// Branches of a cache on the CPU: variants that share what they have in common give the bits of separate requests, on
// every instruction set, with any number of threads, type of cache and arithmetic of attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "branch_properties.h"
#include "cpu/cpu_backend.h"
#include "random_model.h"

namespace dllm {
namespace {

using test::BranchProperties;
using test::RandomModel;

std::unique_ptr<CpuBackend> cpu_of(const std::shared_ptr<const Model>& model, const CpuOptions& options) {
  return *CpuBackend::create(
      model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights(), options);
}

#ifdef DLLM_SANITIZED
constexpr bool kEverySet = false;
#else
constexpr bool kEverySet = true;
#endif

/// On every set, or on the fastest one only.
void expect_equal_everywhere(const RandomModel& spec, CpuKvType kv, CpuAttention attention, std::int32_t block,
                             bool every_set) {
  const std::shared_ptr<const Model> model = *Model::load(test::random_source(spec));
  std::vector<std::vector<float>> first;
  const std::vector<CpuIsa> sets = cpu_isas();
  const CpuIsa& fastest = *std::ranges::find_if(sets, &CpuIsa::is_default);
  for (const CpuIsa& isa : sets)
    for (const int threads : {1, 3}) {
      if (!isa.available || (!every_set && &isa != &fastest)) continue;
      SCOPED_TRACE(std::string(spec.architecture) + ' ' + isa.name + ' ' + std::to_string(threads) + " threads");
      CpuOptions options;
      options.isa = isa.name;
      options.threads = threads;
      options.kv = kv;
      options.arithmetic = CpuArithmetic::kExact;
      options.attention = attention;
      const auto cpu = cpu_of(model, options);
      const auto logits = test::BranchProperties(*cpu, block).check();
      if (first.empty()) first = logits;
      EXPECT_EQ(logits, first);
    }
  EXPECT_FALSE(first.empty());
}

TEST(Branches, AreSeparateRequestsOnEverySetWithAnyThreadsAndCache) {
  const RandomModel llada{
      .architecture = "llada", .width = 64, .layers = 2, .heads = 2, .kv_heads = 2, .type = TensorType::kQ8_0};
  // The sets differ in their kernels, the types of K/V in what one gathers for them: not every pair is another
  // question.
  for (const CpuKvType kv : {CpuKvType::kF32, CpuKvType::kF16, CpuKvType::kBF16, CpuKvType::kQ8_0, CpuKvType::kQ4_0})
    expect_equal_everywhere(llada, kv, CpuAttention::kF32, 0, kEverySet && kv == CpuKvType::kQ8_0);
  for (const CpuKvType kv : {CpuKvType::kF32, CpuKvType::kBF16})  // rows that are converted, and that are not
    expect_equal_everywhere(llada, kv, CpuAttention::kBF16, 0, kEverySet && kv == CpuKvType::kBF16);
  expect_equal_everywhere(llada, CpuKvType::kF16, CpuAttention::kF32, 8, false);
}

TEST(Branches, OfOtherArchitectures) {
  const ExpertsDesc pooled = {.count = 12,
                              .used = 4,
                              .width = 32,
                              .shared_width = 32,
                              .score = GateScore::kSigmoid,
                              .capacity = 6,
                              .normalize = true};
  expect_equal_everywhere({.architecture = "llada2", .experts = pooled}, CpuKvType::kF16, CpuAttention::kF32, 32,
                          false);
  expect_equal_everywhere({.architecture = "dream", .kv_heads = 2}, CpuKvType::kF16, CpuAttention::kF32, 0, false);
  for (const std::int32_t block : {0, 1, 8})  // layers with windows
    expect_equal_everywhere({.architecture = "diffusion-gemma", .layers = 4, .kv_heads = 2}, CpuKvType::kF16,
                            CpuAttention::kF32, block, false);
}

}  // namespace
}  // namespace dllm
