// Drafters on the simulated NPU: hidden states are the same from the executor and from compiled programs, answers are
// the model's own in the device's number formats, and the drafter's steps are on the device's clock.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "drafter_pair.h"
#include "engine/generate.h"
#include "engine/resolve.h"
#include "npu_backend/accuracy/accuracy_backend.h"
#include "npu_backend/functional/npu_backend.h"
#include "npu_backend/timed/timed_backend.h"
#include "npu_core/device/device.h"
#include "npu_core/device/profile.h"

namespace dllm {
namespace {

test::RandomModel target_model() {
  return {.architecture = "qwen3", .layers = 4, .heads = 4, .kv_heads = 2, .seed = 5};
}

test::RandomModel drafter_model(const DrafterDesc& drafter) {
  return {.architecture = "dflash", .layers = 2, .heads = 2, .kv_heads = 2, .seed = 6, .drafter = drafter};
}

/// Three prompts, the second of which asks for no hidden states.
std::vector<Scores> all_prompts(Backend& backend, bool together) {
  const std::vector<std::vector<TokenId>> prompts = {{3, 17, 42, 8, 61}, {7, 7, 1}, {2, 30}};
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<SequenceStep> steps;
  for (const std::vector<TokenId>& prompt : prompts) {
    caches.push_back(*backend.make_cache(16));
    SequenceStep& step = steps.emplace_back(SequenceStep{caches.back().get(), {}, {}, std::nullopt});
    const auto size = static_cast<Position>(prompt.size());
    for (Position p = 0; p < size; ++p) step.plan.rows.push_back({p, prompt[static_cast<std::size_t>(p)]});
    step.plan.visible = {{0, size}};
    step.plan.causal_block = 1;
    step.plan.scored = {size - 1};
    step.request.hidden = steps.size() != 2;
  }
  if (together) return *backend.forward(steps);
  std::vector<Scores> all;
  for (const SequenceStep& step : steps) all.push_back(std::move((*backend.forward({&step, 1}))[0]));
  return all;
}

npu::accuracy::NumericsProfile numbers(const char* name) {
  npu::accuracy::NumericsProfile profile = *npu::accuracy::load_numerics(name);
  profile.device = "plena-64-wide";
  return profile;
}

template <class Build>
std::unique_ptr<Backend> executor_of(const std::shared_ptr<const Model>& model, const Build& build, const char* name) {
  return *npu::accuracy::AccuracyBackend::create(model->desc(), build, model->weights(), numbers(name), 2);
}

TEST(NpuDrafter, HiddenStatesAreThoseOfCompiledPrograms) {
  const auto model = *Model::load(test::random_source(target_model()), Log());
  const std::vector<std::int32_t> layers = {0, 2};
  const auto build = [&](StepShape shape) { return model->build(shape, layers); };
  const auto machine =
      npu::NpuBackend::create(model->desc(), build, model->weights(), *numbers("w4a8kv4").machine(), {.positions = 32});
  ASSERT_TRUE(machine) << machine.error().message();
  const std::vector<Scores> got = all_prompts(**machine, true), alone = all_prompts(**machine, false),
                            executor = all_prompts(*executor_of(model, build, "w4a8kv4"), true);
  EXPECT_TRUE(got[1].hidden.empty() && executor[1].hidden.empty()) << "nobody asked";
  for (const std::size_t s : {0U, 2U}) {
    ASSERT_EQ(got[s].hidden.size(), (s == 0 ? 5U : 2U) * 2 * 64);
    EXPECT_EQ(got[s].hidden, alone[s].hidden);
    EXPECT_EQ(got[s].hidden, executor[s].hidden);
  }
}

ResolvedOptions resolved(const Backend& backend, const char* mode) {
  GenerateOptions given;
  given.length = 16;
  given.exact_length = true;
  given.mode.name = mode;
  if (given.mode.name == "self-speculation") given.mode.options = {{"draft_min", 3}};
  const auto result = resolve_options(given, backend.desc());
  EXPECT_TRUE(result) << result.error().message();
  return *result;
}

struct Timed {
  std::unique_ptr<DrafterBackend> backend;
  npu::TimedBackend* model = nullptr;
};

/// All three graphs on one clock, in numbers without exponents that are shared with keys which a row does not see.
Timed timed(const test::Pair& pair, const npu::Device& device) {
  const auto& [model, drafter] = pair;
  const auto layers = drafter->desc().drafter.target_layers;
  const auto whole = [model, layers](StepShape shape) { return model->build(shape, layers); };
  const auto context = [drafter](StepShape shape) { return drafter->build_context(shape); };
  const auto block = [drafter](StepShape shape) { return drafter->build(shape); };
  auto target = *npu::TimedBackend::create(executor_of(model, whole, "f32"), device, whole, {});
  npu::TimedBackend* const first = target.get();
  DrafterBackend::Parts parts{std::move(target),
                              *npu::TimedBackend::create(executor_of(drafter, context, "f32"), device, context, {},
                                                         first, npu::StepKind::kPart),
                              *npu::TimedBackend::create(executor_of(drafter, block, "f32"), device, block, {}, first),
                              DraftChoice(*drafter)};
  return {std::make_unique<DrafterBackend>(std::move(parts), drafter->desc().drafter, *drafter->desc().mask, 0.3),
          first};
}

TEST(NpuDrafter, WordsAreTheModelsOwnAndDraftsTakeTime) {
  const npu::Device device = *npu::load_device("plena-64-wide");
  const DrafterDesc kinds[] = {{.target_layers = {0, 2}, .block = 6, .vocab = 30},
                               {.target_layers = {1}, .block = 6, .markov_rank = 8, .confidence_head = true}};
  for (const DrafterDesc& kind : kinds) {
    const test::Pair pair = test::paired(target_model(), drafter_model(kind));
    const Timed drafted = timed(pair, device);
    const npu::AnswerClock& clock = drafted.model->clock();
    const auto plain = generate({*drafted.backend}, {3, 17, 42, 8, 61}, resolved(*drafted.backend, "ar"));
    ASSERT_TRUE(plain) << plain.error().message();
    EXPECT_EQ(clock.steps().size(), static_cast<std::size_t>(plain->stats.nfe));
    drafted.model->clock().reset();
    const auto answer =
        generate({*drafted.backend}, {3, 17, 42, 8, 61}, resolved(*drafted.backend, "self-speculation"));
    ASSERT_TRUE(answer) << answer.error().message();
    EXPECT_EQ(answer->ids, plain->ids);
    EXPECT_GT(answer->stats.rounds, 0);
    std::size_t passes = 0, reads = 0;
    double seconds = 0, before_drafts = 0;
    for (const npu::TimedStep& step : clock.steps()) {
      ++(step.kind == npu::StepKind::kPass ? passes : reads);
      EXPECT_GT(step.time.seconds(), 0);
      if (passes == 1) before_drafts += step.time.seconds();
      EXPECT_TRUE(step.kind == npu::StepKind::kPass || step.work.scored == 0);
      seconds += step.time.seconds();
    }
    EXPECT_EQ(passes, static_cast<std::size_t>(answer->stats.nfe));
    EXPECT_EQ(reads, static_cast<std::size_t>(answer->stats.rounds)) << "once before every draft";
    EXPECT_NEAR(clock.sum().seconds(), seconds, 1e-12);
    EXPECT_NEAR(clock.sum(1).seconds(), before_drafts, 1e-12) << "the prompt, and the drafter's reading of it";
    EXPECT_NEAR(clock.sum(passes).seconds(), seconds, 1e-12);
  }
}

}  // namespace
}  // namespace dllm
