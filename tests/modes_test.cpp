// Models that were trained for several ways of decoding: self-speculation says what autoregression says, token for
// token, whatever the window, batch, threads, cache type and sampling.
#include <gtest/gtest.h>

#include "cpu/cpu_backend.h"
#include "engine/generate.h"
#include "engine/recording.h"
#include "engine/replay.h"
#include "engine/resolve.h"
#include "random_model.h"

namespace dllm {
namespace {

using test::RandomModel;

struct Variant {
  RandomModel model;
  CpuKvType kv = CpuKvType::kAuto;
  CpuArithmetic arithmetic = CpuArithmetic::kExact;
  double temperature = 0;
  std::int32_t top_k = 0;
};

class Speculation {
 public:
  explicit Speculation(const Variant& variant)
      : model_(*Model::load(test::random_source(variant.model), Log())), variant_(variant) {}

  std::unique_ptr<CpuBackend> backend(int threads) const {
    CpuOptions options;
    options.threads = threads;
    options.kv = variant_.kv;
    options.arithmetic = variant_.arithmetic;
    const auto build = [this](StepShape shape) { return model_->build(shape); };
    return *CpuBackend::create(model_->desc(), build, model_->weights(), options);
  }

  ResolvedOptions resolved(const std::string& mode, const OptionMap& options = {}) const {
    GenerateOptions given;
    given.length = 24;
    given.exact_length = true;
    given.mode = {mode, options};
    if (variant_.temperature > 0) {
      given.temperature = variant_.temperature;
      if (variant_.top_k > 0) given.top_k = variant_.top_k;
    }
    given.seed = 11;
    auto result = resolve_options(given, model_->desc());
    EXPECT_TRUE(result) << result.error().message();
    return *result;
  }

  /// Of different lengths, so that rounds of a batch begin at different positions.
  static std::vector<std::vector<TokenId>> prompts() {
    return {{3, 1, 4, 1, 5, 9}, {2}, {7, 1, 8, 2, 8, 1, 8, 2, 8, 4}};
  }

 private:
  std::shared_ptr<const Model> model_;
  Variant variant_;
};

/// What self-speculation brought, over all of a variant's answers.
struct Brought {
  std::int32_t rounds = 0, tokens = 0;
};

Brought expect_lossless(const Variant& variant) {
  const Speculation speculation(variant);
  const auto prompts = Speculation::prompts();
  std::vector<std::vector<std::int32_t>> expected;
  const auto one = speculation.backend(1);
  for (const auto& prompt : prompts) {
    const auto ar = generate({*one}, prompt, speculation.resolved("ar"));
    EXPECT_TRUE(ar);
    EXPECT_EQ(ar->stats.nfe, 24);
    EXPECT_EQ(ar->stats.rows_forwarded, static_cast<std::int64_t>(prompt.size()) + 23);
    expected.push_back(ar->ids);
  }
  Brought brought;
  const auto three = speculation.backend(3);
  const OptionMap windows[] = {
      {{"draft_min", 2}, {"draft_max", 2}}, {{"draft_min", 5}, {"draft_max", 32}, {"draft_confidence", 0.5}}, {}};
  for (const OptionMap& window : windows) {
    const ResolvedOptions resolved = speculation.resolved("self-speculation", window);
    for (const std::int32_t batch : {1, 3}) {
      const auto answers = generate_batch({*three}, prompts, resolved, {.batch = batch});
      EXPECT_TRUE(answers);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ((*answers)[i].ids, expected[i]);
        brought.rounds += (*answers)[i].stats.rounds, brought.tokens += (*answers)[i].stats.round_tokens;
      }
    }
  }
  return brought;
}

RandomModel tiny(TensorType type = TensorType::kF32, std::uint64_t seed = 1) {
  return {
      .architecture = "nemotron_labs_diffusion", .width = 64, .heads = 2, .kv_heads = 1, .type = type, .seed = seed};
}

TEST(Speculation, GreedyIsAutoregression) {
  expect_lossless({tiny()});
  expect_lossless({tiny(TensorType::kQ8_0, 2)});
  expect_lossless({tiny(TensorType::kQ8_0, 3), CpuKvType::kQ8_0});
  expect_lossless({tiny(TensorType::kBF16, 4), CpuKvType::kF16});
  expect_lossless({tiny(TensorType::kQ8_0, 5), CpuKvType::kBF16, CpuArithmetic::kSuper});
}

TEST(Speculation, SampledIsAutoregressionWithTheSameSeed) {
  Brought all;
  for (const Variant& variant :
       {Variant{tiny(), CpuKvType::kF32, CpuArithmetic::kExact, 0.8},
        Variant{tiny(TensorType::kQ8_0, 2), CpuKvType::kQ8_0, CpuArithmetic::kExact, 3.0},
        Variant{tiny(TensorType::kQ8_0, 3), CpuKvType::kF16, CpuArithmetic::kExact, 1.5, 20}}) {
    const Brought brought = expect_lossless(variant);
    all.rounds += brought.rounds, all.tokens += brought.tokens;
  }
  EXPECT_GT(all.tokens, all.rounds + all.rounds / 4)
      << "drafts with the noise of their position should be right at times";
}

TEST(ModeReplay, FollowsItsRecording) {
  const Speculation speculation({tiny()});
  const auto backend = speculation.backend(1);
  const std::vector<TokenId> prompt = {3, 1, 4, 1, 5, 9}, other = {9, 8, 7, 6, 5, 4};
  for (const char* mode : {"ar", "diffusion", "self-speculation"}) {
    SCOPED_TRACE(mode);
    const ResolvedOptions resolved = speculation.resolved(mode);
    const auto recorded = generate({*backend}, prompt, resolved);
    ASSERT_TRUE(recorded);
    const auto schedule = schedule_of(*recorded);
    ASSERT_TRUE(schedule) << schedule.error().message();
    const auto again = generate({*backend}, other, resolved, {.replay = &*schedule});
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_NE(again->ids, recorded->ids) << "the same predictions would prove nothing";
    EXPECT_TRUE(check_replayed(*again, *schedule));
    EXPECT_TRUE(check_same_work(*again, *recorded));
  }
}

TEST(ModeReplay, RoundsOfATrainedModelAreReplayedAndCut) {
  const Speculation speculation({tiny()});
  const auto backend = speculation.backend(1);
  const ResolvedOptions resolved = speculation.resolved("self-speculation");
  Generation trained = *generate({*backend}, {3, 1, 4}, resolved);
  std::int32_t position = 0;
  for (const auto& [pass, tokens] : {std::pair{0, 1}, {2, 5}, {4, 8}, {6, 7}, {8, 3}})
    for (std::int32_t i = 0; i < tokens; ++i) trained.commit_step[static_cast<std::size_t>(position++)] = pass;
  ASSERT_EQ(position, 24);
  trained.stats.nfe = 9;
  Recording recording;
  ASSERT_TRUE(add_answer(recording, trained));
  EXPECT_EQ(recording.options.mode.name, "self-speculation");
  for (const std::int32_t length : {24, 20, 7}) {
    const CommitSchedule schedule = *recording.schedule(0, length);
    GenerateOptions options = recording.replay_options(length);
    options.exact_length = true;
    const auto cut = *resolve_options(options, backend->desc());
    const auto answer = generate({*backend}, {7, 7, 7}, cut, {.replay = &schedule});
    ASSERT_TRUE(answer) << answer.error().message();
    const auto followed = check_replayed(*answer, schedule);
    EXPECT_TRUE(followed) << followed.error().message();
    EXPECT_EQ(answer->stats.nfe, length == 24 ? 9 : length == 20 ? 7 : 4) << "a last position alone is not drafted";
  }
  const CommitSchedule whole = *recording.schedule(0, 24);
  const auto narrow = speculation.resolved("self-speculation", {{"draft_min", 2}, {"draft_max", 4}});
  const auto misfit = generate({*backend}, {7, 7, 7}, narrow, {.replay = &whole});
  ASSERT_TRUE(misfit);
  EXPECT_EQ(check_replayed(*misfit, whole).error().code, ErrorCode::kMismatch);
  const auto sure = speculation.resolved("self-speculation", {{"draft_confidence", 0.5}});
  const auto refused = generate({*backend}, {7, 7, 7}, sure, {.replay = &whole});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, "--draft-confidence");
}

TEST(Speculation, OptionsAreThoseOfTheMode) {
  const Speculation speculation({tiny()});
  const auto model = *Model::load(test::random_source(tiny()), Log());
  const auto error = [&](const GenerateOptions& options, const ModelDesc& desc) -> std::string {
    const auto resolved = resolve_options(options, desc);
    return resolved ? "" : resolved.error().where + ": " + resolved.error().what;
  };
  GenerateOptions given;
  EXPECT_EQ(resolve_options(given, model->desc())->mode.name, "self-speculation");
  given.decoder.name = "native";
  EXPECT_NE(error(given, model->desc()).find("--algorithm"), std::string::npos);
  given.mode.name = "diffusion";
  EXPECT_EQ(error(given, model->desc()), "");
  given.decoder.name = "revision";
  EXPECT_NE(error(given, model->desc()).find("read causally"), std::string::npos);
  given = {};
  given.cache.name = "dual";
  EXPECT_NE(error(given, model->desc()).find("--cache"), std::string::npos);
  given = {};
  given.mode = {"self-speculation", {{"draft_min", 9}, {"draft_max", 8}}};
  EXPECT_NE(error(given, model->desc()).find("--draft-max"), std::string::npos);
  given.mode = {"self-speculation", {{"draft_latency", "nominal"}}};
  EXPECT_NE(error(given, model->desc()).find("--draft-latency"), std::string::npos)
      << "read with --draft-objective rate";
  given.mode = {"ar", {{"draft_min", 4}}};
  EXPECT_NE(error(given, model->desc()).find("--draft-min"), std::string::npos);

  const auto other = *Model::load(test::random_source({}), Log());
  given.mode = {"ar"};
  EXPECT_NE(error(given, other->desc()).find("one way of decoding"), std::string::npos);
  given.mode = {"", {{"draft_min", 4}}};
  EXPECT_NE(error(given, other->desc()).find("--draft-min"), std::string::npos);
  given = {};
  const auto plain = resolve_options(given, other->desc());
  ASSERT_TRUE(plain);
  for (const auto& [key, value] : plain->values) EXPECT_NE(key, "mode");
}

TEST(Speculation, ModesComeFromTheFile) {
  ModelSource source = test::random_source(tiny());
  source.metadata.set("diffusion.modes", MetaValue::strings({"ar"}));
  const auto model = *Model::load(std::move(source), Log());
  EXPECT_EQ(model->desc().modes, std::vector<DecodingMode>{DecodingMode::kAutoregressive});
  GenerateOptions given;
  EXPECT_EQ(resolve_options(given, model->desc())->mode.name, "ar");
  given.mode.name = "self-speculation";
  const auto refused = resolve_options(given, model->desc());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("not trained"), std::string::npos);
  source = test::random_source(tiny());
  source.metadata.set("diffusion.modes", MetaValue::strings({"backwards"}));
  EXPECT_FALSE(Model::load(std::move(source), Log()));
  source = test::random_source({.architecture = "llama"});
  source.metadata.set("diffusion.modes", MetaValue::strings({"ar"}));
  EXPECT_FALSE(Model::load(std::move(source), Log())) << "no mask token";
}

}  // namespace
}  // namespace dllm
