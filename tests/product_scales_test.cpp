// Files that store matrices divided by a number of their own (llama.cpp's NVFP4): products are those of the whole
// matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "cpu/cpu_backend.h"
#include "random_model.h"

namespace dllm {
namespace {

std::vector<float> logits_of(const std::shared_ptr<const Model>& model) {
  const auto build = [&model](StepShape shape) { return model->build(shape); };
  CpuOptions options;
  options.kv = CpuKvType::kF32;
  const auto cpu = *CpuBackend::create(model->desc(), build, model->weights(), options);
  const auto cache = *cpu->make_cache(16);
  StepPlan plan;
  for (Position p = 0; p < 11; ++p) {
    plan.rows.push_back({p, (p * 7 + 3) % 80});
    plan.scored.push_back(p);
  }
  plan.visible = {{0, 11}};
  SequenceStep step{cache.get(), plan, {}, {}};
  step.request.logits = true;
  return (*cpu->forward({&step, 1}))[0].logits;
}

class ProductScales : public testing::Test {
 protected:
  /// Of Dream, whose products have biases: the scales must not multiply those.
  ProductScales() : source_(test::random_source({.architecture = "dream"})), whole_(source_) {
    for (const char* name : {"attn_q", "attn_k", "attn_v"}) add("blk.0." + std::string(name) + ".bias", 64, 0.5f);
    whole_.tensors = source_.tensors;
  }

  void add(const std::string& name, std::int64_t count, float value) {
    auto& floats = storage_.emplace_back(static_cast<std::size_t>(count), value);
    source_.tensors.push_back({name, TensorType::kF32, {count}, std::as_bytes(std::span(floats)), 0});
  }

  /// A scale for the matrix, and the whole matrix for the other model.
  void scale(const std::string& base, float by) {
    add(base + ".scale", 1, by);
    for (SourceTensor& tensor : whole_.tensors)
      if (tensor.name == base + ".weight") {
        auto& floats = storage_.emplace_back(tensor.data.size() / 4);
        std::memcpy(floats.data(), tensor.data.data(), tensor.data.size());
        for (float& value : floats) value *= by;
        tensor.data = std::as_bytes(std::span(floats));
      }
  }

  std::deque<std::vector<float>> storage_;
  ModelSource source_, whole_;
};

TEST_F(ProductScales, AreThoseOfTheWholeMatrices) {
  const std::vector<float> unscaled = logits_of(*Model::load(whole_));
  float by = 0.37f;
  for (const char* name : {"blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output", "blk.1.attn_q",
                           "blk.0.ffn_gate", "blk.1.ffn_up", "blk.1.ffn_down", "output"})
    scale(name, by *= 1.3f);
  const auto scaled = Model::load(source_);
  ASSERT_TRUE(scaled) << scaled.error().message();
  const std::vector<float> actual = logits_of(*scaled), expected = logits_of(*Model::load(whole_));
  ASSERT_EQ(actual.size(), expected.size());
  float largest = 0, worst = 0, changed = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::fabs(expected[i]));
    worst = std::max(worst, std::fabs(actual[i] - expected[i]));
    changed = std::max(changed, std::fabs(unscaled[i] - expected[i]));
  }
  EXPECT_LT(worst, 1e-5f * largest);
  EXPECT_GT(changed, 0.1f * largest);
}

TEST_F(ProductScales, ThoseOfActivationsChangeNothing) {
  add("blk.0.attn_q.input_scale", 1, 3.f);
  add("blk.1.ffn_down.input_scale", 1, 3.f);
  const auto model = Model::load(source_);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(logits_of(*model), logits_of(*Model::load(whole_)));
}

TEST_F(ProductScales, OthersAreRefused) {
  for (const char* name :
       {"blk.0.attn_norm.scale", "token_embd.scale", "blk.7.attn_q.scale", "blk.0.attn_x.input_scale"}) {
    add(name, 1, 2.f);
    const auto model = Model::load(source_);
    ASSERT_FALSE(model) << name;
    EXPECT_NE(model.error().message().find(name), std::string::npos) << model.error().message();
    source_.tensors.pop_back();
  }
  add("blk.0.attn_q.scale", 2, 2.f);
  EXPECT_FALSE(Model::load(source_)) << "one number per matrix";
}

}  // namespace
}  // namespace dllm
