// A model on several ranks gives the bits of one process: every architecture, weight type, split and number of ranks.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/hash.h"
#include "random_model.h"
#include "ranks/command.h"
#include "ranks/ranked_backend.h"
#include "ranks_on_threads.h"

namespace dllm {
namespace {

using test::expect_same_bits;
using test::RandomModel;
using test::Script;
using test::Trace;

constexpr Position kPrompt = 21, kLength = 37;

StepPlan plan_of(PositionRange rows, PositionRange visible, std::int64_t vocab, std::int32_t causal_block) {
  StepPlan plan;
  for (Position p = rows.begin; p < rows.end; ++p) {
    plan.rows.push_back({p, static_cast<TokenId>((p * 7 + 3) % vocab)});
    if (p % 3 != 1) plan.scored.push_back(p - rows.begin);
  }
  plan.visible = {visible};
  plan.causal_block = causal_block;
  return plan;
}

/// A prompt, a block that reads its cache, scattered rows, a single row; then two sequences together.
Trace run_steps(Backend& backend, const ScoreRequest& request = {}) {
  const std::int64_t vocab = backend.desc().vocab;
  const std::int32_t causal = backend.desc().causal_block;
  Trace trace;
  const auto forward = [&](std::vector<SequenceStep> batch) {
    for (SequenceStep& step : batch) step.request = request;
    auto scores = backend.forward(batch);
    if (!scores) {
      ADD_FAILURE() << scores.error().message();
      return;
    }
    for (Scores& one : *scores) trace.push_back(std::move(one));
  };
  const auto first = *backend.make_cache(64), second = *backend.make_cache(64);
  StepPlan prompt = plan_of({0, kPrompt}, {0, kPrompt}, vocab, causal);
  StepPlan block = plan_of({kPrompt, kLength}, {0, kLength}, vocab, causal);
  forward({{first.get(), prompt, {}, {}}});
  forward({{first.get(), block, {}, {}}});
  StepPlan scattered = block;
  scattered.rows = {{3, 5}, {kPrompt + 2, 1}, {kPrompt + 9, 2}};
  scattered.scored = {1, 2};
  forward({{first.get(), scattered, {}, {}}});
  StepPlan single = scattered;
  single.rows = {{kPrompt + 1, 9}};
  single.scored = {0};
  forward({{first.get(), single, {}, {}}});
  forward({{first.get(), block, {}, {}}, {second.get(), prompt, {}, {}}});
  return trace;
}

std::shared_ptr<const Model> model_of(const RandomModel& spec) { return *Model::load(test::random_source(spec)); }

Script with_logits() {
  return [](Backend& backend) {
    ScoreRequest request;
    request.logits = true;
    return run_steps(backend, request);
  };
}

TEST(Ranks, EveryArchitectureHasTheBitsOfOneProcess) {
  for (const char* architecture : {"llada", "dream", "llama", "llada-moe", "llada2", "rnd1", "sdar", "sdar-moe",
                                   "fast-dllm-v2", "qwen2", "qwen3", "qwen3moe", "mdlm"}) {
    const auto model = model_of({.architecture = architecture,
                                 .width = 128,
                                 .layers = 3,
                                 .heads = 8,
                                 .kv_heads = 4,
                                 .ffn_width = 160,
                                 .experts = {.count = 8, .used = 3, .width = 96, .shared_width = 96}});
    expect_same_bits(*model, with_logits(), {2, 3, 4}, architecture);
  }
}

TEST(Ranks, WeightTypes) {
  using enum TensorType;
  for (const TensorType type : {kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_K, kQ6_K, kQ2_K})
    for (const char* architecture : {"llada", "llada-moe"}) {
      const auto model = model_of({.architecture = architecture,
                                   .width = 256,
                                   .layers = 1,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .ffn_width = 512,
                                   .type = type,
                                   .experts = {.count = 4, .used = 2, .width = 256}});
      const std::string what = std::string(architecture) + " " + std::string(codec(type).name);
      expect_same_bits(*model, with_logits(), {3}, what);
      CpuOptions super;
      super.arithmetic = CpuArithmetic::kSuper;
      super.attention = CpuAttention::kBF16;
      expect_same_bits(*model, with_logits(), {2}, what + " super", super, {SplitKind::kOutputs, SplitKind::kRows});
    }
}

TEST(Ranks, FewHeadsAndManyRanks) {
  for (const std::int64_t kv_heads : {1, 2}) {
    const auto model = model_of({.architecture = "qwen3", .width = 96, .heads = 6, .kv_heads = kv_heads});
    expect_same_bits(*model, with_logits(), {5, 8}, "six heads");
  }
}

TEST(Ranks, TwoRegionsAndWindows) {
  const auto model =
      model_of({.architecture = "diffusion-gemma", .width = 128, .layers = 4, .heads = 4, .kv_heads = 2});
  const Script script = [](Backend& backend) {
    ScoreRequest request;
    request.logits = true;
    Trace trace = run_steps(backend, request);
    const auto cache = *backend.make_cache(64);
    SequenceStep step{cache.get(), plan_of({0, kPrompt}, {0, kPrompt}, 80, 1), request, {}};
    trace.push_back((*backend.forward({&step, 1}))[0]);
    step.plan = plan_of({kPrompt, kLength}, {0, kLength}, 80, 0);
    step.plan.region = Region::kCanvas;
    step.plan.mixtures = {{0, {{5, 0.3f}, {61, 0.7f}}}, {6, {{0, 1.f}}}};
    trace.push_back((*backend.forward({&step, 1}))[0]);
    return trace;
  };
  expect_same_bits(*model, script, {2, 3}, "diffusion-gemma");
}

TEST(Ranks, ExpertsOfBlocksAndGroups) {
  using enum GateScore;
  const ExpertsDesc kinds[] = {
      {.count = 12, .used = 4, .width = 64, .shared_width = 64, .score = kSigmoid, .capacity = 6, .normalize = true},
      {.count = 12, .used = 4, .width = 96, .score = kSigmoid, .groups = 4, .groups_used = 2, .scale = 2.5f},
      {.count = 7, .used = 1, .width = 40, .shared_width = 40, .leading_dense = 1, .score = kSigmoid}};
  for (const ExpertsDesc& kind : kinds)
    expect_same_bits(*model_of({.architecture = "llada2", .width = 96, .experts = kind}), with_logits(), {2, 3},
                     "experts");
}

/// An adapter of every product of a model, whose matrices have `rank` inner columns.
Adapter adapter_of(const Model& model, std::int64_t rank, bool drafts_only, std::vector<std::vector<float>>& memory) {
  Adapter adapter{"a test's", drafts_only, {}};
  const Graph graph = model.build({1, 1});
  const auto matrix = [&](std::string name, std::int64_t columns, std::int64_t rows) {
    std::vector<float>& values = memory.emplace_back(static_cast<std::size_t>(columns * rows));
    std::uint64_t state = memory.size();
    for (float& value : values) value = static_cast<float>(splitmix64(state) >> 40) * 0x1p-24f - 0.5f;
    return SourceTensor{std::move(name), TensorType::kF32, {columns, rows}, std::as_bytes(std::span(values))};
  };
  for (const Op& op : graph.ops) {
    const auto* const linear = std::get_if<op::Linear>(&op);
    if (linear == nullptr) continue;
    const WeightDecl& decl = graph.weight(linear->weight);
    const std::string name = "adapter" + std::to_string(rank) + "." + decl.name;
    adapter.parts.push_back({decl.name, 0.25f, matrix(name + ".lora_a", decl.shape[0], rank),
                             matrix(name + ".lora_b", rank, decl.shape[1])});
  }
  return adapter;
}

/// Of every product, B is split as the product that it is added to. A is on all ranks if it is narrow, and split if it
/// is wide.
TEST(Ranks, AdaptersHaveTheBitsOfOneProcess) {
  const Script script = [](Backend& backend) {
    ScoreRequest request;
    request.logits = true;
    Trace trace = run_steps(backend, request);
    const auto cache = *backend.make_cache(64);
    SequenceStep step{cache.get(), plan_of({0, kPrompt}, {0, kPrompt}, 80, 0), request, {}};
    step.plan.region = Region::kCanvas;
    trace.push_back((*backend.forward({&step, 1}))[0]);
    return trace;
  };
  for (const char* architecture : {"llada", "qwen3", "llada-moe"}) {
    const RandomModel spec{.architecture = architecture, .width = 128, .layers = 3, .heads = 8, .kv_heads = 4};
    const auto plain = model_of(spec);
    std::vector<std::vector<float>> memory;
    memory.reserve(1000);  // tensors are views of them
    std::vector<Adapter> adapters;
    adapters.push_back(adapter_of(*plain, 4, false, memory));
    adapters.push_back(adapter_of(*plain, 100, true, memory));
    const auto adapted = *Model::load(test::random_source(spec), Log(), {}, std::move(adapters));
    ASSERT_NE(test::difference(test::run_alone(*plain, script), test::run_alone(*adapted, script)), "");
    expect_same_bits(*adapted, script, {2, 3, 4}, std::string("adapters of ") + architecture);
  }
}

/// Everything that a head can be asked for, over five chunks of the vocabulary.
std::vector<ScoreRequest> all_requests() {
  std::vector<ScoreRequest> all(7);
  all[1].top_tokens = 5;
  all[1].queries = {{0, 3}, {0, 2047}, {1, 4999}, {2, 1024}};
  all[2].temperature = 0.8;
  all[2].rng = {.seed = 7, .request = 3};
  all[2].rules = {{5, false, true}, {2050, false, false}};
  for (const std::size_t i : {3U, 4U, 5U, 6U})
    all[i].temperature = 1.5, all[i].distribution = ScoreDistribution::kSampled;
  all[3].top_k = 40;
  all[4].top_p = 0.9;
  all[5].min_p = 0.05;
  all[6].top_p = 0.9999;  // beyond its list: a second pass
  all[6].logits = true;
  all[6].adjustments.repetition = 1.3f;
  all[6].adjustments.tokens = {{17, true, 2, 0.5f}, {4100, false, 1, -1.f}};
  return all;
}

TEST(Ranks, EveryRequestOfTheHead) {
  const auto model = model_of({.vocab = 5000});
  for (const ScoreRequest& request : all_requests())
    expect_same_bits(*model, [&](Backend& backend) { return run_steps(backend, request); }, {2, 6}, "requests", {},
                     {SplitKind::kOutputs, SplitKind::kRows});
}

/// Tiles of the LM head have 128 rows where weights are packed in super rows, and 32 elsewhere; with few tokens of a
/// vocabulary, one rank's part may be too small for those.
TEST(Ranks, WideNucleiOfManyRows) {
  const auto model = model_of({.width = 256, .vocab = 5000, .type = TensorType::kQ8_0});
  const Script script = [](Backend& backend) {
    const auto cache = *backend.make_cache(64);
    StepPlan plan = plan_of({0, 60}, {0, 60}, 5000, 0);
    plan.scored.clear();
    for (std::int32_t i = 0; i < 60; ++i) plan.scored.push_back(i);
    SequenceStep step{cache.get(), plan, {}, {}};
    step.request.temperature = 1.5, step.request.top_p = 0.9999;
    return *backend.forward({&step, 1});
  };
  CpuOptions super;
  super.arithmetic = CpuArithmetic::kSuper;
  expect_same_bits(*model, script, {2, 6}, "super", super, {SplitKind::kOutputs, SplitKind::kRows});
  expect_same_bits(*model, script, {3, 6}, "regular", {}, {SplitKind::kOutputs, SplitKind::kRows});
}

TEST(Ranks, GuidanceMixturesAndShadows) {
  const Script script = [](Backend& backend) {
    const auto first = *backend.make_cache(64), second = *backend.make_cache(64);
    StepPlan plan = plan_of({0, kPrompt}, {0, kPrompt}, 2100, 0);
    plan.mixtures = {{2, {{5, 0.3f}, {61, 0.02f}}}, {17, {{4, 0.25f}}}};
    SequenceStep conditional{first.get(), plan, {}, Guidance{1, 1.5f}};
    conditional.request.logits = true;
    const SequenceStep other{second.get(), plan, {}, {}};
    const std::vector<SequenceStep> pair = {conditional, other};
    Trace trace = *backend.forward(pair);
    SequenceStep shadowed{first.get(), plan, conditional.request, {}};
    shadowed.plan.shadows = {{{4, 9}, {{0, 7}}}, {{11, 9}, {{2, 12}, {14, 20}}}};
    shadowed.plan.scored = {3, static_cast<std::int32_t>(plan.rows.size()),
                            static_cast<std::int32_t>(plan.rows.size()) + 1};
    trace.push_back((*backend.forward({&shadowed, 1}))[0]);
    return trace;
  };
  // Guided rows are scored in pairs of two sequences, whose rows may be another rank's.
  for (const TensorType type : {TensorType::kF32, TensorType::kQ8_0})
    expect_same_bits(*model_of({.kv_heads = 2, .vocab = 2100, .type = type}), script, {2, 3}, "guidance");
}

TEST(Ranks, Threads) {
  const auto model = model_of({.architecture = "llada-moe",
                               .width = 256,
                               .heads = 8,
                               .ffn_width = 512,
                               .vocab = 3000,
                               .type = TensorType::kQ8_0});
  CpuOptions two;
  two.threads = 2;
  expect_same_bits(*model, with_logits(), {2}, "two threads each", two);
}

TEST(Ranks, ALostRankEndsTheStepOfTheOthers) {
  const auto model = model_of({});
  const auto group = test::local_group(3);
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      CpuOptions options;
      options.threads = 1;
      options.ranks = group[static_cast<std::size_t>(rank)].get();
      const auto backend = *CpuBackend::create(
          model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), options);
      const auto cache = *backend->make_cache(64);
      SequenceStep step{cache.get(), plan_of({0, kPrompt}, {0, kPrompt}, 80, 0), {}, {}};
      ASSERT_TRUE(backend->forward({&step, 1}));
      EXPECT_TRUE(cache->holds(4));
      if (rank == 2) return group[2]->abort("rank 2 was stopped");
      for (int i = 0; i < 2; ++i) {
        const auto scores = backend->forward({&step, 1});
        ASSERT_FALSE(scores);
        errors[static_cast<std::size_t>(rank)] = scores.error().message();
        EXPECT_FALSE(cache->holds(4)) << "layers differ";
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(errors[static_cast<std::size_t>(rank)], "ranks: rank 2 was stopped");
}

/// Steps after a copy of cached rows, as reuse of prefixes makes them.
Trace copy_and_run(Backend& backend) {
  Trace trace = run_steps(backend, {});
  const auto from = *backend.make_cache(64), to = *backend.make_cache(64);
  SequenceStep step{from.get(), plan_of({0, kPrompt}, {0, kPrompt}, 80, 0), {}, {}};
  trace.push_back((*backend.forward({&step, 1}))[0]);
  to->copy(*from, {0, kPrompt}, 0);
  step.cache = to.get();
  step.plan = plan_of({kPrompt, kLength}, {0, kLength}, 80, 0);
  step.request.logits = true;
  trace.push_back((*backend.forward({&step, 1}))[0]);
  return trace;
}

TEST(Ranks, FollowersDoWhatTheFirstAsks) {
  const auto model = model_of({.width = 128, .heads = 8});
  const Trace expected = test::run_alone(*model, copy_and_run);
  for (const SplitKind split : {SplitKind::kOutputs, SplitKind::kRows, SplitKind::kLayers}) {
    auto group = test::local_group(3);
    const auto part = [&](int rank) {
      CpuOptions options;
      options.threads = 1;
      options.ranks = group[static_cast<std::size_t>(rank)].get();
      options.split = split;
      return *CpuBackend::create(
          model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), options);
    };
    std::vector<std::thread> followers;
    for (int rank = 1; rank < 3; ++rank)
      followers.emplace_back([&, rank] {
        const auto own = part(rank);
        const auto followed = follow_ranks(*own, *group[static_cast<std::size_t>(rank)]);
        EXPECT_TRUE(followed) << followed.error().message();
      });
    {
      auto own = part(0);
      RankedBackend backend(std::move(own), std::shared_ptr<Communicator>(std::move(group[0])));
      EXPECT_EQ(test::difference(expected, copy_and_run(backend)), "") << static_cast<int>(split);
    }
    for (std::thread& follower : followers) follower.join();
  }
}

TEST(Ranks, AFollowerRefusesStepsThatDoNotFit) {
  const auto model = model_of({});
  auto group = test::local_group(2);
  std::string error;
  std::thread follower([&] {
    CpuOptions options;
    options.threads = 1;
    options.ranks = group[1].get();
    const auto own = *CpuBackend::create(
        model->desc(), [&](StepShape shape) { return model->build(shape); }, model->weights(), options);
    const auto followed = follow_ranks(*own, *group[1]);
    if (!followed) error = followed.error().message();
  });
  RunSteps run;
  run.caches = {7};  // which nobody has made
  run.steps.resize(1);
  run.steps[0].plan = plan_of({0, 4}, {0, 4}, 80, 0);
  EXPECT_TRUE(group[0]->broadcast(encode_command(run)));
  follower.join();
  EXPECT_NE(error.find("does not fit"), std::string::npos) << error;
  EXPECT_FALSE(group[0]->broadcast({})) << "and all ranks end";
}

TEST(Ranks, SizesThatDifferAreAnError) {
  const auto group = test::local_group(2);
  std::vector<bool> failed(2, false);
  const auto send = [&](int rank, std::size_t bytes) {
    const std::vector<std::byte> own(bytes);
    std::vector<std::byte> all(64);
    const std::size_t sizes[] = {rank == 0 ? bytes : 8, rank == 1 ? bytes : 8};
    return !group[static_cast<std::size_t>(rank)]->all_gather(own, sizes, all);
  };
  bool other = false;
  std::thread thread([&] { other = send(1, 16); });
  EXPECT_TRUE(send(0, 8));
  thread.join();
  EXPECT_TRUE(other);
}

}  // namespace
}  // namespace dllm
