// Whole generations of small mixture-of-experts models, and of MDLM, on the NPU's backend: tokens, confidences and
// steps equal those of the reference executor bit for bit. Intermediate values are compared by
// src/npu_compiler/testing/reference's own tests.

#include <gtest/gtest.h>

#include "engine/generate.h"
#include "engine/resolve.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_backend/functional/testing/reference_backend.h"
#include "npu_machine.h"
#include "random_model.h"

namespace dllm {
namespace {

test::RandomModel llada_moe() {
  test::RandomModel spec;
  spec.architecture = "llada-moe";
  spec.experts = {.count = 12, .used = 3, .width = 24};
  return spec;
}

test::RandomModel llada2() {
  test::RandomModel spec;
  spec.architecture = "llada2";
  spec.kv_heads = 2;
  spec.experts = {.count = 16,
                  .used = 3,
                  .width = 32,
                  .shared_width = 40,
                  .leading_dense = 1,
                  .score = GateScore::kSigmoid,
                  .groups = 4,
                  .groups_used = 2,
                  .normalize = true,
                  .scale = 2.5f};
  return spec;
}

struct ExpertsMethod {
  const char* algorithm;
  const char* cache;
};

void expect_equal_generations(const test::RandomModel& spec, const ExpertsMethod& method) {
  const auto model = *Model::load(test::random_source(spec));
  const auto factory = [&](StepShape shape) { return model->build(shape); };
  const auto npu =
      npu::NpuBackend::create(model->desc(), factory, model->weights(), test::small_machine(), {.positions = 64});
  ASSERT_TRUE(npu.has_value()) << npu.error().message();
  npu::test::ReferenceBackend reference(model->desc(), factory, model->weights(), (*npu)->layout());
  GenerateOptions options;
  options.length = 16;
  options.block_length = 8;
  if (method.algorithm == std::string("low-confidence")) options.decoder.options["steps"] = 4;
  options.decoder.name = method.algorithm;
  options.cache.name = method.cache;
  const auto resolved = resolve_options(options, model->desc());
  ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
  const std::vector<TokenId> prompt = {3, 17, 42, 8, 61};
  const auto run = [&](Backend& backend) { return generate({backend}, prompt, *resolved); };
  const auto got = run(**npu), expected = run(reference);
  ASSERT_TRUE(got.has_value()) << got.error().message();
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  EXPECT_EQ(got->ids.size(), 16u);
  EXPECT_EQ(got->ids, expected->ids);
  EXPECT_EQ(got->confidence, expected->confidence);
  EXPECT_EQ(got->commit_step, expected->commit_step);
  EXPECT_GE((*npu)->counters().steps, 4u);
}

TEST(NpuExperts, GenerationsEqualTheReference) {
  expect_equal_generations(llada_moe(), {"low-confidence", "none"});
  expect_equal_generations(llada_moe(), {"threshold", "dual"});
  expect_equal_generations(llada2(), {"low-confidence", "prefix"});
  expect_equal_generations(llada2(), {"threshold", "none"});
}

/// Layer norms with gains, biases of products, and GELU without a gate.
TEST(NpuMdlm, GenerationsEqualTheReference) {
  test::RandomModel spec;
  spec.architecture = "mdlm";
  expect_equal_generations(spec, {"low-confidence", "none"});
  expect_equal_generations(spec, {"threshold", "none"});
}

}  // namespace
}  // namespace dllm
