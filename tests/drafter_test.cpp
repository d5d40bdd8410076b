// Drafters beside autoregressive models: drafts are those of the drafters' authors (golden/models/drafter.py), and
// answers are the model's own, token for token, whatever the drafter, window, batch, threads and sampling.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cpu/cpu_backend.h"
#include "drafter_pair.h"
#include "engine/drafter_backend.h"
#include "engine/generate.h"
#include "engine/resolve.h"
#include "golden_model.h"
#include "starved_backend.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::Pair;
using test::paired;
using test::RandomModel;
using test::Seen;

constexpr Position kLength = 24;  // of answers

/// A drafter that knows what the model will say, and is wrong at every `period`-th position.
class Oracle final : public Backend {
 public:
  Oracle(std::unique_ptr<Backend> drafter, std::vector<TokenId> tokens, Position period)
      : drafter_(std::move(drafter)), tokens_(std::move(tokens)), period_(period) {}
  const ModelDesc& desc() const override { return drafter_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return drafter_->make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    for (const SequenceStep& step : batch) {  // the noise of the pass and the row that would predict the same token
      EXPECT_EQ(step.request.draw_ahead, -1);
      EXPECT_EQ(step.plan.visible, (std::vector<PositionRange>{{0, step.plan.rows.back().position + 1}}))
          << "hidden states of everything in front of the block were read";
      EXPECT_EQ(step.request.steps_from, static_cast<Position>(tokens_.size()) - kLength);
    }
    auto scores = drafter_->forward(batch);
    if (!scores) return scores;
    for (Scores& one : *scores)
      for (RowScore& row : one.rows)
        if (static_cast<std::size_t>(row.position) < tokens_.size() && row.position % period_ != 0)
          row.token = tokens_[static_cast<std::size_t>(row.position)];
    return scores;
  }

 private:
  std::unique_ptr<Backend> drafter_;
  std::vector<TokenId> tokens_;  ///< by position
  Position period_;
};

struct Settings {
  int threads = 1;
  CpuKvType kv = CpuKvType::kAuto;
  std::vector<TokenId> oracle{};
  Position period = 1 << 20;
  bool starved = false;  ///< no memory for drafts
};

std::unique_ptr<CpuBackend> alone(const Pair& pair, const Settings& settings) {
  CpuOptions options;
  options.threads = settings.threads;
  options.kv = settings.kv;
  const auto model = pair.target;
  return *CpuBackend::create(
      model->desc(), [model](StepShape shape) { return model->build(shape); }, model->weights(), options);
}

std::unique_ptr<DrafterBackend> drafted(const Pair& pair, const Settings& settings) {
  CpuOptions options;
  options.threads = settings.threads;
  options.kv = settings.kv;
  const auto [model, drafter] = pair;
  const auto layers = drafter->desc().drafter.target_layers;
  DrafterBackend::Parts parts{
      *CpuBackend::create(
          model->desc(), [model, layers](StepShape shape) { return model->build(shape, layers); }, model->weights(),
          options),
      *CpuBackend::create(
          drafter->desc(), [drafter](StepShape shape) { return drafter->build_context(shape); }, drafter->weights(),
          options),
      *CpuBackend::create(
          drafter->desc(), [drafter](StepShape shape) { return drafter->build(shape); }, drafter->weights(), options),
      DraftChoice(*drafter)};
  if (!settings.oracle.empty())
    parts.block = std::make_unique<Oracle>(std::move(parts.block), settings.oracle, settings.period);
  if (settings.starved) parts.block = std::make_unique<test::StarvedBackend>(std::move(parts.block));
  return std::make_unique<DrafterBackend>(std::move(parts), drafter->desc().drafter, *drafter->desc().mask, 0.3);
}

ResolvedOptions resolved(const Backend& backend, const MethodChoice& mode, double temperature) {
  GenerateOptions given;
  given.length = kLength;
  given.exact_length = true;
  given.mode = mode;
  if (temperature > 0) given.temperature = temperature;
  if (temperature > 1) given.top_k = 20;
  given.seed = 11;
  auto result = resolve_options(given, backend.desc());
  EXPECT_TRUE(result) << result.error().message();
  return *result;
}

RandomModel target_of(const std::string& architecture, TensorType type = TensorType::kF32) {
  return {.architecture = architecture, .layers = 4, .heads = 4, .kv_heads = 2, .type = type, .seed = 5};
}
RandomModel drafter_of(const DrafterDesc& drafter, TensorType type = TensorType::kF32) {
  return {
      .architecture = "dflash", .layers = 2, .heads = 2, .kv_heads = 1, .type = type, .seed = 6, .drafter = drafter};
}

const std::vector<std::vector<TokenId>> kPrompts = {{3, 1, 4, 1, 5, 9}, {2}, {7, 1, 8, 2, 8, 1, 8, 2, 8, 4}};

struct Brought {
  std::int32_t rounds = 0, tokens = 0;
};

/// Answers with the drafter, in any window and batch, are those without it.
Brought expect_same_words(const Pair& pair, double temperature, Settings settings = {}) {
  Brought brought;
  std::vector<std::vector<TokenId>> expected;
  const auto plain = alone(pair, {1, settings.kv});
  for (const auto& prompt : kPrompts)
    expected.push_back(generate({*plain}, prompt, resolved(*plain, {}, temperature))->ids);
  const MethodChoice modes[] = {{"ar"},
                                {"self-speculation"},
                                {"self-speculation", {{"draft_min", 2}, {"draft_max", 3}}},
                                {"self-speculation", {{"draft_min", 4}, {"draft_cut", 0.05}}},
                                {"self-speculation", {{"draft_confidence", 0.2}}},
                                {"self-speculation", {{"draft_cut", 1.0}}}};
  for (std::size_t p = 0; p < kPrompts.size(); ++p) {
    settings.oracle = kPrompts[p];
    settings.oracle.insert(settings.oracle.end(), expected[p].begin(), expected[p].end());
    for (const Position period : {Position{1}, Position{5}}) {
      settings.period = period;  // 1: the drafter's own drafts
      const auto backend = drafted(pair, settings);
      for (const MethodChoice& mode : modes) {
        const auto options = resolved(*backend, mode, temperature);
        const auto answer = generate({*backend}, kPrompts[p], options);
        EXPECT_TRUE(answer) << answer.error().message();
        EXPECT_EQ(answer->ids, expected[p]) << mode.name << " period " << period;
        if (&mode == std::end(modes) - 1) {
          EXPECT_EQ(answer->stats.rounds, 0) << "no draft is as sure as that";
        }
        if (period > 1) brought.rounds += answer->stats.rounds, brought.tokens += answer->stats.round_tokens;
      }
    }
  }
  settings.oracle.clear();
  settings.threads = 3;
  const auto backend = drafted(pair, settings);
  const auto answers = generate_batch({*backend}, kPrompts, resolved(*backend, {}, temperature), {.batch = 3});
  EXPECT_TRUE(answers);
  for (std::size_t p = 0; p < kPrompts.size(); ++p) {
    EXPECT_EQ((*answers)[p].ids, expected[p]);
    const auto one = generate({*backend}, kPrompts[p], resolved(*backend, {}, temperature));
    EXPECT_EQ((*answers)[p].commit_step, one->commit_step) << "drafts do not depend on the batch";
  }
  return brought;
}

TEST(Drafter, WordsAreTheModelsOwn) {
  for (const char* architecture : {"llama", "qwen2", "qwen3", "qwen3moe"}) {
    SCOPED_TRACE(architecture);
    const Pair pair = paired(target_of(architecture), drafter_of({.target_layers = {0, 2}, .block = 6}));
    const Brought brought = expect_same_words(pair, 0);
    EXPECT_GT(brought.tokens, 2 * brought.rounds) << "right drafts should have been accepted";
  }
}

TEST(Drafter, DrawnWordsAreTheModelsOwn) {
  const Pair pair = paired(target_of("qwen3"), drafter_of({.target_layers = {1}, .block = 8}));
  for (const double temperature : {0.8, 1.5}) {
    const Brought brought = expect_same_words(pair, temperature);
    EXPECT_GT(brought.tokens, 2 * brought.rounds);
  }
}

TEST(Drafter, WordsAreTheModelsOwnInEveryFormat) {
  const auto heads = [](RandomModel model) {
    model.heads = 2, model.kv_heads = 1;
    return model;
  };
  const Pair pair = paired(heads(target_of("llama", TensorType::kQ8_0)),
                           drafter_of({.target_layers = {0, 1, 2}, .block = 5}, TensorType::kQ4_0));
  for (const CpuKvType kv : {CpuKvType::kF16, CpuKvType::kQ8_0}) expect_same_words(pair, 0.9, {1, kv});
}

TEST(Drafter, WordsAreTheModelsOwnWithOtherHeads) {
  const DrafterDesc kinds[] = {
      {.target_layers = {0, 2}, .block = 6, .conv_taps = 3, .conv_group = 8, .selector_rank = 4, .selector_top = 5},
      {.target_layers = {0, 2}, .block = 6, .vocab = 30},
      {.target_layers = {0, 2}, .block = 6, .markov_rank = 8, .confidence_head = true}};
  for (const DrafterDesc& kind : kinds)
    for (const double temperature : {0.0, 0.8})
      expect_same_words(paired(target_of("qwen3"), drafter_of(kind)), temperature);
}

/// Everything that a causal pass over these prompts hands out, one prompt after the other.
std::vector<std::vector<float>> hidden_of(Backend& backend, bool together) {
  std::vector<std::unique_ptr<KvCache>> caches;
  std::vector<SequenceStep> steps;
  for (const auto& prompt : kPrompts) {
    caches.push_back(*backend.make_cache(32));
    SequenceStep step{caches.back().get(), {}, {}, std::nullopt};
    for (std::size_t i = 0; i < prompt.size(); ++i) step.plan.rows.push_back({static_cast<Position>(i), prompt[i]});
    step.plan.visible = {{0, static_cast<Position>(prompt.size())}};
    step.plan.causal_block = 1;
    step.plan.scored = {0};
    step.request.hidden = true;
    steps.push_back(std::move(step));
  }
  std::vector<std::vector<float>> all;
  if (together) {
    auto scores = *backend.forward(steps);
    for (Scores& one : scores) all.push_back(std::move(one.hidden));
  } else {
    for (const SequenceStep& step : steps) all.push_back(std::move((*backend.forward({&step, 1}))[0].hidden));
  }
  return all;
}

TEST(HiddenStates, AreTheSameInEveryBatchAndOnAnyThreads) {
  for (const char* architecture : {"llama", "qwen3moe"}) {
    const auto model = *Model::load(test::random_source(target_of(architecture)), Log());
    const std::vector<std::int32_t> layers = {0, 2};
    ASSERT_TRUE(model->check_hidden(layers));
    const auto build = [&](StepShape shape) { return model->build(shape, layers); };
    const auto backend = [&](int threads) {
      CpuOptions options;
      options.threads = threads;
      return *CpuBackend::create(model->desc(), build, model->weights(), options);
    };
    const auto expected = hidden_of(*backend(1), false);
    EXPECT_EQ(hidden_of(*backend(3), true), expected);
    for (std::size_t p = 0; p < kPrompts.size(); ++p) ASSERT_EQ(expected[p].size(), kPrompts[p].size() * 2 * 64);
    EXPECT_TRUE(hidden_of(*alone({model, nullptr}, {}), true)[0].empty()) << "the plain graph hands out nothing";
    EXPECT_EQ(model->build({4, 1}).ops.size() + layers.size(), build({4, 1}).ops.size());
  }
  const auto gemma = *Model::load(test::random_source({.architecture = "diffusion-gemma"}), Log());
  EXPECT_EQ(gemma->check_hidden(std::vector<std::int32_t>{0}).error().code, ErrorCode::kUnsupported);
}

class GoldenDrafter : public ::testing::TestWithParam<const char*> {};

test::HfCheckpoint checkpoint_of(const json& description) {
  test::HfCheckpoint checkpoint = test::make_checkpoint({});
  checkpoint.config = description["config"];
  checkpoint.tensors.clear();
  for (const json& entry : description["tensors"])
    checkpoint.tensors.push_back({entry["name"].get<std::string>(), "F32",
                                  entry["shape"].get<std::vector<std::int64_t>>(), test::tensor_bytes_of(entry)});
  return checkpoint;
}

Pair golden_pair(const json& golden) {
  const test::TempDirectory target, drafter;
  checkpoint_of(golden["target"]).write(target.path());
  auto own = checkpoint_of(golden);
  own.tokenizer = own.tokenizer_config = nullptr;
  own.write(drafter.path());
  Pair pair{*Model::load(target.path()), nullptr};
  auto source = open_source(drafter.path());
  EXPECT_TRUE(source) << source.error().message();
  EXPECT_TRUE(is_drafter(*source));
  const auto complete = complete_drafter(*pair.target, *source);
  EXPECT_TRUE(complete) << complete.error().message();
  auto loaded = Model::load(*std::move(source), Log());
  EXPECT_TRUE(loaded) << loaded.error().message();
  pair.drafter = *loaded;
  EXPECT_TRUE(check_drafter(*pair.target, *pair.drafter));
  return pair;
}

/// The rounds as they were recorded: prompt, draft, verification, ...
TEST_P(GoldenDrafter, DraftsAreThoseOfItsAuthors) {
  const std::string path = std::string(test::kGoldenModels) + GetParam();
  const json golden = json::parse(test::read_file(path + ".json"));
  const Pair pair = golden_pair(golden);
  Seen target, drafts;
  const auto backend = test::watched_pair(pair, target, drafts);
  std::vector<TokenId> tokens = golden["input_ids"].get<std::vector<TokenId>>();
  const auto prompt_end = static_cast<Position>(tokens.size());
  const auto cache = *backend->make_cache(64);
  const auto pass = [&](const std::vector<TokenId>& shown, PositionRange range, bool draft) {
    return test::scores_of(*backend, *cache, shown, range, draft);
  };
  pass(tokens, {0, prompt_end}, false);
  const auto states = golden["hidden"].get<std::vector<double>>();
  EXPECT_LT(
      test::deviation({target.hidden.end() - static_cast<std::ptrdiff_t>(states.size()), target.hidden.end()}, states),
      1e-4);
  const auto answer = golden["tokens"].get<std::vector<TokenId>>();
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  for (const json& round : golden["rounds"]) {
    const Position begin = round["begin"].get<Position>(), end = begin + pair.drafter->desc().drafter.block;
    std::vector<TokenId> shown(tokens.begin(), tokens.begin() + begin + 1);
    for (const RowScore& row : pass(shown, {begin, end}, true).rows) shown.push_back(row.token);
    EXPECT_EQ(std::vector<TokenId>(shown.begin() + begin + 1, shown.end()),
              round["drafts"].get<std::vector<TokenId>>());
    // The rows of wrong drafts are forgotten, and so are their hidden states.
    pass(shown, {begin, end}, false);
    Position right = begin + 1;
    while (right < end && static_cast<std::size_t>(right) < tokens.size() &&
           shown[static_cast<std::size_t>(right)] == tokens[static_cast<std::size_t>(right)])
      ++right;
    cache->invalidate({right, end});
  }
  const auto array = parse_npy(test::read_file(path + ".npy"), GetParam());
  ASSERT_TRUE(array) << array.error().message();
  EXPECT_LT(test::deviation(drafts.logits, {array->values.begin(), array->values.end()}), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Authors, GoldenDrafter,
                         ::testing::Values("drafter-plain", "drafter-second", "drafter-sliding"));

TEST(Drafter, CopiedPositionsAreKnownToTheDrafterToo) {
  const Pair pair = paired(target_of("qwen3"), drafter_of({.target_layers = {1}, .block = 8}));
  const auto backend = drafted(pair, {});
  const auto from = *backend->make_cache(64), to = *backend->make_cache(64);
  std::vector<TokenId> tokens;
  std::vector<Position> positions;
  for (Position p = 0; p < 20; ++p) positions.push_back(p);
  for (Position p = 0; p < 28; ++p) tokens.push_back(p % 7 + 1);
  (void)test::scores_of(*backend, *from, tokens, {0, 20}, false);
  to->copy_rows(*from, positions);
  ASSERT_TRUE(to->holds({0, 20}));
  EXPECT_EQ(to->epoch(), 1U);
  const Scores one = test::scores_of(*backend, *from, tokens, {20, 28}, true),
               two = test::scores_of(*backend, *to, tokens, {20, 28}, true);
  ASSERT_EQ(one.rows.size(), two.rows.size());
  for (std::size_t i = 0; i < one.rows.size(); ++i) {
    EXPECT_EQ(one.rows[i].token, two.rows[i].token);
    EXPECT_EQ(one.rows[i].confidence, two.rows[i].confidence);
  }
}

TEST(Drafter, APassWithoutMemoryFailsAndLeavesNoRows) {
  const Pair pair = paired(target_of("qwen3"), drafter_of({.target_layers = {1}, .block = 8}));
  const auto backend = drafted(pair, {.starved = true});
  const auto reads = *backend->make_cache(64), drafts = *backend->make_cache(64);
  const std::vector<TokenId> tokens(28, 3);
  for (KvCache* const cache : {reads.get(), drafts.get()})
    (void)test::scores_of(*backend, *cache, tokens, {0, 20}, false);
  std::vector<SequenceStep> batch(2);
  batch[0].cache = reads.get(), batch[1].cache = drafts.get();
  batch[0].plan.causal_block = 1;
  batch[1].plan.region = Region::kDraft;
  for (Position p = 20; p < 28; ++p)
    for (SequenceStep& step : batch)
      step.plan.rows.push_back({p, step.plan.region == Region::kDraft && p > 20 ? -1 : 3});
  for (SequenceStep& step : batch) step.plan.visible = {{0, 28}}, step.plan.scored = {1};
  const auto failed = backend->forward(batch);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kResource);
  EXPECT_TRUE(reads->holds({0, 20}));
  EXPECT_FALSE(reads->holds(20)) << "the model has run its pass, but nobody got its scores";
}

TEST(Drafter, AnotherModelsDrafterIsRefusedWithBothNames) {
  const auto refusal = [](const RandomModel& target, const RandomModel& drafter) -> std::string {
    const auto model = *Model::load(test::random_source(target), Log());
    ModelSource source = test::random_source(drafter);
    source.metadata.set("general.name", MetaValue::string("The drafter"));
    if (auto complete = complete_drafter(*model, source); !complete) return complete.error().message();
    const auto loaded = Model::load(std::move(source), Log());
    if (!loaded) return loaded.error().message();
    const auto checked = check_drafter(*model, **loaded);
    return checked ? "" : checked.error().message();
  };
  RandomModel wide = drafter_of({.target_layers = {0}});
  wide.width = 128;
  for (const std::string& text :
       {refusal(target_of("llama"), wide), refusal(target_of("llama"), drafter_of({.target_layers = {0, 3}}))}) {
    EXPECT_NE(text.find("The drafter"), std::string::npos) << text;
    EXPECT_NE(text.find("llama"), std::string::npos) << text;
  }
  EXPECT_NE(refusal({.architecture = "llada", .layers = 4}, drafter_of({.target_layers = {0}})).find("one token after"),
            std::string::npos);
}

}  // namespace
}  // namespace dllm
