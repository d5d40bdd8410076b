// A model whose layers are on two backends has the bits of the model on one. Both are the CPU's here, so that every
// machine compares them; gpu_layers_test.cpp has a device.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "branch_properties.h"
#include "cpu/cpu_backend.h"
#include "cut_models.h"
#include "engine/cut_backend.h"
#include "random_model.h"

namespace dllm {
namespace {

using test::cut_on_cpu;
using test::expect_same_scores;
using test::on_cpu;
using test::step_over;

/// Fails when it is told to.
class Fragile final : public Backend {
 public:
  explicit Fragile(std::unique_ptr<Backend> own) : own_(std::move(own)) {}
  const ModelDesc& desc() const override { return own_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return own_->make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    if (fails) return Error{ErrorCode::kResource, "no memory", "", ""};
    return own_->forward(batch);
  }
  bool fails = false;

 private:
  std::unique_ptr<Backend> own_;
};

TEST(CutBackend, EveryArchitectureHasTheBitsOfOneBackend) {
  for (const char* architecture : {"llada", "dream", "llama", "llada-moe", "llada2", "rnd1", "sdar", "sdar-moe",
                                   "fast-dllm-v2", "qwen2", "qwen3", "qwen3moe", "mdlm"}) {
    const auto model = *Model::load(test::random_source({.architecture = architecture, .layers = 3, .kv_heads = 2}));
    const auto whole = on_cpu(*model);
    for (const int last : {1, 2}) {
      SCOPED_TRACE(std::string(architecture) + ", " + std::to_string(last));
      CutBackend cut(cut_on_cpu(*model, last, true), cut_on_cpu(*model, last, false));
      const auto one = *whole->make_cache(64), two = *cut.make_cache(64);
      EXPECT_EQ(two->bytes(), one->bytes()) << "K and V of a layer are in one part";
      for (const auto& [begin, end] : {std::pair{0, 37}, {30, 41}}) {
        std::vector<SequenceStep> batch = {step_over(*model, begin, end)};
        expect_same_scores(cut, *two, *whole, *one, batch);
      }
    }
  }
}

TEST(CutBackend, GuidanceDrawsMixturesAndBatches) {
  const auto model = *Model::load(test::random_source({.layers = 3, .type = TensorType::kQ8_0}));
  const auto whole = on_cpu(*model);
  CutBackend cut(cut_on_cpu(*model, 2, true), cut_on_cpu(*model, 2, false));
  std::vector<SequenceStep> batch = {step_over(*model, 0, 20), step_over(*model, 0, 20, 5),
                                     step_over(*model, 0, 31, 9)};
  batch[0].guidance = Guidance{1, 0.5f};
  batch[0].plan.mixtures = {{2, {{5, 0.3f}, {61, 0.02f}}}};
  batch[2].plan.scored = {3, 30};
  batch[2].request.temperature = 0.7;
  batch[2].request.rng = {.seed = 3, .request = 1};
  batch[2].request.queries = {{1, 7}};
  std::vector<std::unique_ptr<KvCache>> one, two;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    one.push_back(*whole->make_cache(64));
    two.push_back(*cut.make_cache(64));
  }
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].cache = one[i].get();
  const auto expected = whole->forward(batch);
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].cache = two[i].get();
  const auto actual = cut.forward(batch);
  ASSERT_TRUE(expected && actual);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ((*actual)[i].logits, (*expected)[i].logits);
    EXPECT_EQ((*actual)[i].queried, (*expected)[i].queried);
    ASSERT_EQ((*actual)[i].rows.size(), (*expected)[i].rows.size());
    for (std::size_t r = 0; r < (*expected)[i].rows.size(); ++r)
      EXPECT_EQ((*actual)[i].rows[r].token, (*expected)[i].rows[r].token);
    EXPECT_TRUE((*actual)[i].hidden.empty()) << "they are not the caller's";
    EXPECT_EQ(two[i]->epoch(), 1U);
    EXPECT_EQ(two[i]->token_of(7), batch[i].plan.rows[7].token);
  }
}

TEST(CutBackend, ShadowRowsAndBranches) {
  const auto model = *Model::load(test::random_source({.layers = 3, .kv_heads = 2}));
  CutBackend cut(cut_on_cpu(*model, 2, true), cut_on_cpu(*model, 2, false));
  EXPECT_EQ(test::BranchProperties(cut, 0).check(), test::BranchProperties(*on_cpu(*model), 0).check());
}

TEST(CutBackend, CopiedRowsAreThoseOfBothParts) {
  const auto model = *Model::load(test::random_source({.layers = 3}));
  CutBackend cut(cut_on_cpu(*model, 1, true), cut_on_cpu(*model, 1, false));
  const auto whole = on_cpu(*model);
  const auto first = *cut.make_cache(64), copied = *cut.make_cache(64), one = *whole->make_cache(64);
  std::vector<SequenceStep> prompt = {step_over(*model, 0, 32)}, block = {step_over(*model, 32, 40)};
  expect_same_scores(cut, *first, *whole, *one, prompt);
  copied->copy(*first, {0, 32}, 0);
  EXPECT_TRUE(copied->holds(PositionRange{0, 32}));
  EXPECT_FALSE(copied->holds(32));
  EXPECT_EQ(copied->token_of(31), first->token_of(31));
  expect_same_scores(cut, *copied, *whole, *one, block);
}

TEST(CutBackend, AFailureOfEitherPartLeavesNoRows) {
  const auto model = *Model::load(test::random_source({.layers = 3}));
  for (const bool in_front : {true, false}) {
    auto front = std::make_unique<Fragile>(cut_on_cpu(*model, 1, true));
    auto back = std::make_unique<Fragile>(cut_on_cpu(*model, 1, false));
    Fragile& fragile = in_front ? *front : *back;
    CutBackend cut(std::move(front), std::move(back));
    const auto whole = on_cpu(*model);
    const auto cache = *cut.make_cache(64), one = *whole->make_cache(64);
    std::vector<SequenceStep> prompt = {step_over(*model, 0, 16)}, block = {step_over(*model, 8, 16, 3)};
    expect_same_scores(cut, *cache, *whole, *one, prompt);
    fragile.fails = true;
    block[0].cache = cache.get();
    EXPECT_FALSE(cut.forward(block));
    EXPECT_TRUE(cache->holds(PositionRange{0, 8}));
    for (Position p = 8; p < 16; ++p) EXPECT_FALSE(cache->holds(p)) << p;
    fragile.fails = false;
    expect_same_scores(cut, *cache, *whole, *one, block);
  }
}

}  // namespace
}  // namespace dllm
