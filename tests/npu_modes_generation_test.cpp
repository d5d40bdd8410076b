// Models of several modes on the NPU's backend: every mode gives the tokens and confidences of the reference executor
// bit for bit, and self-speculation says what autoregression says in the machine's number formats too.

#include <gtest/gtest.h>

#include "engine/generate.h"
#include "engine/resolve.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_backend/functional/testing/reference_backend.h"
#include "npu_machine.h"
#include "random_model.h"

namespace dllm {
namespace {

TEST(NpuModes, GenerationsEqualTheReference) {
  test::RandomModel spec;
  spec.architecture = "nemotron_labs_diffusion";
  spec.kv_heads = 2;
  const auto model = *Model::load(test::random_source(spec), Log());
  const auto factory = [&](StepShape shape) { return model->build(shape); };
  const auto npu =
      npu::NpuBackend::create(model->desc(), factory, model->weights(), test::small_machine(), {.positions = 32});
  ASSERT_TRUE(npu.has_value()) << npu.error().message();
  npu::test::ReferenceBackend reference(model->desc(), factory, model->weights(), (*npu)->layout());
  std::vector<TokenId> autoregressive;
  for (const char* mode : {"ar", "self-speculation", "diffusion"}) {
    SCOPED_TRACE(mode);
    GenerateOptions options;
    options.length = 12;
    options.exact_length = true;
    options.mode.name = mode;
    if (options.mode.name == "self-speculation") options.mode.options = {{"draft_min", 4}, {"draft_max", 6}};
    const auto resolved = resolve_options(options, model->desc());
    ASSERT_TRUE(resolved.has_value()) << resolved.error().message();
    const auto run = [&](Backend& backend) { return generate({backend}, {3, 17, 42, 8, 61}, *resolved); };
    const auto got = run(**npu), expected = run(reference);
    ASSERT_TRUE(got.has_value()) << got.error().message();
    ASSERT_TRUE(expected.has_value()) << expected.error().message();
    EXPECT_EQ(got->ids, expected->ids);
    EXPECT_EQ(got->confidence, expected->confidence);
    EXPECT_EQ(got->commit_step, expected->commit_step);
    if (autoregressive.empty()) autoregressive = got->ids;
    if (options.mode.name == "self-speculation") {
      EXPECT_EQ(got->ids, autoregressive);
      EXPECT_GT(got->stats.rounds, 0);
    }
  }
}

}  // namespace
}  // namespace dllm
