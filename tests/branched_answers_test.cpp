// Answers whose passes forward several states, on the embedded model.
#include <gtest/gtest.h>

#include "dllm/model.h"

namespace dllm {
namespace {

std::vector<std::vector<ChatTurn>> riddles() {
  std::vector<std::vector<ChatTurn>> result;
  for (const char* text : {"Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?",
                           "3 + 4 =", "Sort these words: pear apple fig", "Reverse: a b c d"})
    result.push_back({{"user", text}});
  return result;
}

LanguageModel loaded(std::int32_t threads) {
  LoadOptions options;
  options.threads = threads;
  return *LanguageModel::load("", options);
}

GenerateOptions with(const std::string& decoder, OptionMap options = {}) {
  GenerateOptions result;
  result.length = 64;
  result.suffix.name = "full";
  result.decoder = {decoder, std::move(options)};
  return result;
}

// The rule's own text and probabilities, whatever else is in the batch, with any number of threads, and with draws.
TEST(BranchedAnswers, FreeDaveIsItsRuleInFewerPasses) {
  const LanguageModel one = loaded(1), three = loaded(3);
  for (const std::string rule : {"low-confidence", "threshold"})
    for (const char* cache : {"none", "dual", "delayed"})
      for (const double temperature : {0.0, 0.8}) {
        SCOPED_TRACE(rule + ' ' + cache);
        GenerateOptions plain = with(rule), guessed = with("freedave", {{"rule", rule}});
        for (GenerateOptions* options : {&plain, &guessed}) {
          options->cache.name = cache;
          options->temperature = temperature;
          options->seed = 5;
        }
        const auto together = *three.generate_batch(riddles(), guessed, 3);
        std::int64_t passes = 0, fewer = 0;
        for (std::size_t i = 0; i < together.size(); ++i) {
          GenerateOptions own = plain;
          own.seed = 5;
          const Generation expected = *one.generate(riddles()[i], own);
          own = guessed;
          own.seed = 5;
          const Generation alone = *one.generate(riddles()[i], own);
          EXPECT_EQ(alone.ids, expected.ids);
          EXPECT_EQ(alone.confidence, expected.confidence);
          EXPECT_EQ(alone.stats.steps, expected.stats.steps);
          EXPECT_EQ(together[i].ids, alone.ids);
          EXPECT_EQ(together[i].stats.nfe, alone.stats.nfe);
          EXPECT_EQ(together[i].stats.rows_forwarded, alone.stats.rows_forwarded);
          passes += expected.stats.nfe;
          fewer += alone.stats.nfe;
        }
        if (rule == "low-confidence" && temperature == 0) {
          EXPECT_LT(fewer * 3, passes * 2);
        } else {
          EXPECT_LE(fewer, passes);
        }
      }
}

TEST(BranchedAnswers, OrderTokenInBatchesAndThreads) {
  const LanguageModel one = loaded(1), three = loaded(3);
  GenerateOptions options = with("order-token", {{"threshold", 0.99}});
  options.cache.name = "dual";
  const auto together = *three.generate_batch(riddles(), options, 4);
  std::int64_t rows = 0, passes = 0;
  for (std::size_t i = 0; i < together.size(); ++i) {
    const Generation alone = *one.generate(riddles()[i], options);
    EXPECT_EQ(together[i].ids, alone.ids);
    EXPECT_EQ(together[i].stats.rows_forwarded, alone.stats.rows_forwarded);
    rows += alone.stats.rows_forwarded;
    passes += alone.stats.nfe;
  }
  GenerateOptions plain = options;
  plain.decoder = {"threshold", {{"threshold", 0.99}}};
  std::int64_t plain_rows = 0, plain_passes = 0;
  for (const auto& riddle : riddles()) {
    const Generation answer = *one.generate(riddle, plain);
    plain_rows += answer.stats.rows_forwarded;
    plain_passes += answer.stats.nfe;
  }
  EXPECT_GT(rows * plain_passes, plain_rows * passes) << "a pass has the rows of several states";
}

/// On the executor of the NPU's number formats, whose caches copy what branches share. A pass costs what the states in
/// it take together.
TEST(BranchedAnswers, OnTheNpu) {
  LoadOptions options;
  options.backend = "npu";
  const auto npu = LanguageModel::load("", options);
  if (!npu) GTEST_SKIP() << "this build has no NPU";
  GenerateOptions guessed = with("freedave"), plain = with("low-confidence");
  guessed.length = plain.length = 16;
  const auto fewer = npu->generate(riddles()[1], guessed), rule = npu->generate(riddles()[1], plain);
  ASSERT_TRUE(fewer && rule) << fewer.error().message();
  EXPECT_EQ(fewer->ids, rule->ids);
  EXPECT_LT(fewer->stats.nfe, rule->stats.nfe);
  const double pass = fewer->virtual_time->parts.seconds() / fewer->stats.nfe;
  EXPECT_GT(pass, rule->virtual_time->parts.seconds() / rule->stats.nfe);
}

TEST(BranchedAnswers, AreRefusedByNameWhereNothingRunsThem) {
  LoadOptions options;
  options.backend = "npu";
  options.backend_options["npu_values"] = std::string("machine");
  const auto npu = LanguageModel::load("", options);
  if (!npu) GTEST_SKIP() << "this build has no NPU";
  for (const char* decoder : {"freedave", "order-token"}) {
    const auto refused = npu->generate(riddles()[1], with(decoder));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().what.find(decoder), std::string::npos);
    EXPECT_NE(refused.error().what.find("several states"), std::string::npos);
  }
}

}  // namespace
}  // namespace dllm
