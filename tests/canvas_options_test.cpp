// What requests may ask of models that refine canvases: structures, canvases of other lengths, and the sampler that
// keeps sure tokens. The model is the tiny DiffusionGemma of golden/models, with random weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <span>

#include "base/types.h"
#include "constrain/testing/validate.h"
#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "golden_model.h"

namespace dllm {
namespace {

using test::GoldenModel;

const std::vector<TokenId> kPrompt = {104, 101, 108, 108, 111};

class CanvasOptionsTest : public testing::Test {
 protected:
  CanvasOptionsTest() : golden_("diffusion-gemma"), model_(*LanguageModel::load(golden_.path(), load())) {}
  static LoadOptions load() {
    LoadOptions options;
    options.threads = 2;
    options.warnings = false;
    return options;
  }

  Generation answer(const GenerateOptions& options) const {
    auto result = model_.generate_ids(kPrompt, options);
    EXPECT_TRUE(result) << result.error().message();
    return result ? *std::move(result) : Generation();
  }
  std::string refusal(const GenerateOptions& options) const {
    const auto result = model_.generate_ids(kPrompt, options);
    return result ? std::string() : result.error().message();
  }

  GoldenModel golden_;
  LanguageModel model_;
};

GenerateOptions few_passes(std::uint64_t seed) {
  GenerateOptions options;
  options.decoder.options["steps"] = std::int64_t{5};
  options.seed = seed;
  return options;
}

TEST_F(CanvasOptionsTest, AnswersMatchTheirStructure) {
  const char* const patterns[] = {"[a-c]{3,9}", "(yes|no), [0-9]{1,4}", "x{20,30}"};
  const std::string schema =
      R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99},
          "ok": {"type": "boolean"}}, "required": ["n", "ok"], "additionalProperties": false})";
  std::set<std::string> texts;
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    for (const char* algorithm : {"", "threshold"})
      for (const char* window : {"", "adaptive"}) {
        GenerateOptions options = few_passes(seed);
        options.decoder.name = algorithm;
        options.window.name = window;
        if (*window != 0) options.block_length = 3;
        for (const char* pattern : patterns) {
          options.regex = pattern;
          const Generation found = answer(options);
          EXPECT_TRUE(std::regex_match(found.text, std::regex(pattern))) << pattern << ": " << found.text;
          EXPECT_EQ(found.finish, FinishReason::kStop);
          texts.insert(found.text);
        }
        options.regex.reset();
        options.json_schema = schema;
        const Generation object = answer(options);
        const auto json = nlohmann::ordered_json::parse(object.text, nullptr, false);
        ASSERT_FALSE(json.is_discarded()) << object.text;
        const auto rules = nlohmann::ordered_json::parse(schema);
        EXPECT_TRUE(constrain::test::validates(json, rules, rules)) << object.text;
      }
  EXPECT_GT(texts.size(), 30U) << "draws and noise depend on the seed";
}

/// The most probable text, where nothing but one canvas and one pass decides.
TEST_F(CanvasOptionsTest, OfTheAcceptedTextsTheMostProbableIsTaken) {
  GenerateOptions options = few_passes(3);
  options.decoder.options["steps"] = std::int64_t{1};
  options.regex = "(ab|cd|ef)";
  const Generation found = answer(options);
  std::vector<double> sums;
  std::vector<std::string> texts;
  for (const char* one : {"ab", "cd", "ef"}) {
    options.regex = one;
    const Generation forced = answer(options);
    EXPECT_EQ(forced.text, one);
    double sum = 0;
    for (std::size_t i = 0; i < 3; ++i) sum += std::log(forced.confidence[i]);  // two letters and the end
    sums.push_back(sum);
    texts.emplace_back(one);
  }
  EXPECT_EQ(found.text, texts[static_cast<std::size_t>(std::ranges::max_element(sums) - sums.begin())]);
  EXPECT_GT(*std::ranges::max_element(sums) - *std::ranges::min_element(sums), 1e-3);
}

TEST_F(CanvasOptionsTest, BatchesAndThreadsChangeNothing) {
  GenerateOptions options = few_passes(9);
  options.decoder.name = "threshold";
  options.window.name = "adaptive";
  options.block_length = 2;
  options.regex = "[a-z]{12,18}";
  const Generation alone = answer(options);
  LoadOptions one = load();
  one.threads = 1;
  const auto single = *LanguageModel::load(golden_.path(), one);
  EXPECT_EQ(single.generate_ids(kPrompt, options)->ids, alone.ids);
  const auto scheduler = *Scheduler::create(model_, {.parallel = 3});
  std::vector<ScheduledRequest> requests(3);
  std::size_t done = 0;
  for (ScheduledRequest& request : requests) {
    request.prompt = kPrompt;
    request.options = options;
    request.on_done = [&](Expected<Generation> result) {
      ASSERT_TRUE(result) << result.error().message();
      EXPECT_EQ(result->ids, alone.ids);
      ++done;
    };
  }
  ASSERT_TRUE(scheduler->submit(std::move(requests)));
  while (scheduler->step()) {
  }
  EXPECT_EQ(done, 3U);
}

/// Rows of the canvases, in order: each is forwarded `steps` times.
std::vector<Position> canvases_of(const LanguageModel& model, const GenerateOptions& options) {
  std::vector<Position> sizes;
  Position end = -1;
  const auto result = model.generate_ids(kPrompt, options, [&](const StepEvent& event) {
    if (event.block_end == end) return true;
    end = event.block_end;
    sizes.push_back(event.block_end - event.block_begin);
    return true;
  });
  EXPECT_TRUE(result) << result.error().message();
  return sizes;
}

TEST_F(CanvasOptionsTest, CanvasesHaveTheLengthThatIsAsked) {
  GenerateOptions options = few_passes(4);
  options.exact_length = true;
  options.length = 21;
  using Sizes = std::vector<Position>;
  EXPECT_EQ(canvases_of(model_, options), (Sizes{8, 8, 5}));  // what is seen of them
  options.block_length = 5;
  EXPECT_EQ(canvases_of(model_, options), (Sizes{5, 5, 5, 5, 1}));
  options.window.name = "adaptive";
  options.block_length = 2;
  EXPECT_EQ(canvases_of(model_, options), (Sizes{2, 2, 4, 8, 5}));
  const Generation grown = answer(options);
  // 4 canvases and the rest, five passes each over as many rows, and what precedes each of them once.
  EXPECT_EQ(grown.stats.rows_scored, 5 * (2 + 2 + 4 + 8 + 5));
  options.block_length.reset();
  EXPECT_EQ(canvases_of(model_, options), (Sizes{8, 8, 5})) << "the model's canvas is shorter than the first default";
  options.window.name.clear();
  options.block_length = 5;
  EXPECT_EQ(answer(options).stats.rows_scored, 5 * 25) << "canvases that do not grow are whole";
}

/// Longer answers are decoded in pieces, which change no canvas.
TEST_F(CanvasOptionsTest, PiecesOfAnAnswerCutNoCanvas) {
  using Sizes = std::vector<Position>;
  GenerateOptions options = few_passes(4);
  options.block_length = 3;
  EXPECT_EQ(model_.resolve(options)->length, 6) << "of the model's 8";
  options.regex = "[a-z]{26}";
  EXPECT_EQ(canvases_of(model_, options), Sizes(9, 3)) << "with the end, 27 tokens";
  options.window.name = "adaptive";
  EXPECT_EQ(canvases_of(model_, options), (Sizes{3, 3, 6, 8, 8}));
  options.regex.reset();
  options.exact_length = true;
  options.length = 8;
  options.max_tokens = 28;
  EXPECT_EQ(canvases_of(model_, options), (Sizes{3, 3, 6, 8, 8}));
  EXPECT_EQ(answer(options).stats.rows_scored, 5 * 28) << "nothing is refined twice";
  options.window.name.clear();
  options.max_tokens = 21;
  EXPECT_EQ(canvases_of(model_, options), Sizes(7, 3));
  const Generation whole = answer(options);
  EXPECT_EQ(whole.stats.rows_scored, 5 * 21) << "nor is anything dropped";
  options.max_tokens = 10;
  const Generation cut = answer(options);
  ASSERT_EQ(cut.ids.size(), 10U);
  EXPECT_TRUE(std::ranges::equal(cut.ids, std::span(whole.ids).first(10))) << "no bound changes a word";
}

TEST_F(CanvasOptionsTest, SureTokensStay) {
  GenerateOptions options = few_passes(4);
  options.exact_length = true;
  options.length = 8;
  options.decoder = {"confidence-threshold", {{"steps", std::int64_t{40}}, {"threshold", 2.0}}};
  // No token is as sure as that: one is kept in each pass.
  EXPECT_EQ(answer(options).stats.nfe, 1 + 8);
  options.decoder.options["threshold"] = 0.0;
  const Generation sure = answer(options);
  EXPECT_EQ(sure.stats.nfe, 1 + 1) << "all are";
  options.decoder = {"", {{"steps", std::int64_t{1}}}};
  EXPECT_EQ(sure.ids, answer(options).ids) << "the answer is the last pass's arg-max";
  options.decoder = {"threshold", {}};
  options.decoder.options["entropy_bound"] = 0.1;
  EXPECT_NE(refusal(options).find("--entropy-bound"), std::string::npos);
  options.decoder = {"threshold"};
  EXPECT_EQ(model_.resolve(options)->decoder.options.at("threshold"), OptionValue(0.9));
}

TEST_F(CanvasOptionsTest, WhatCannotBeIsRefused) {
  GenerateOptions options;
  options.regex = "a{1000}";
  EXPECT_NE(refusal(options).find("tokens"), std::string::npos) << "it does not fit into the context";
  options.regex = "a";
  options.exact_length = true;
  EXPECT_NE(refusal(options).find("--exact-length"), std::string::npos);
  options = {};
  options.preset = "swift";
  EXPECT_NE(refusal(options).find("fill masks"), std::string::npos);
}

}  // namespace
}  // namespace dllm
