// Batches against single runs, on the embedded model.
#include <gtest/gtest.h>

#include <algorithm>
#include <stop_token>

#include "dllm/model.h"

namespace dllm {
namespace {

std::vector<std::vector<ChatTurn>> questions() {
  std::vector<std::vector<ChatTurn>> result;
  for (const char* text : {"Ben has 12 pens. Ben gets 3 more. Then Ben loses 5. How many pens does Ben have now?",
                           "3 + 4 =", "Sort these words: pear apple fig", "Reverse: a b c d", "Copy: x y z",
                           "What is the largest of 3 17 9?", "7 - 2 ="})
    result.push_back({{"user", text}});
  return result;
}

TEST(GenerateBatch, AnswersAreThoseOfSingleRuns) {
  const LanguageModel model = *LanguageModel::load("");
  GenerateOptions plain;
  plain.length = 64;
  GenerateOptions sampled = plain, guided = plain, cached = plain;
  sampled.temperature = 0.7;
  sampled.seed = 3;
  guided.cfg_scale = 0.5;
  cached.cache.name = "dual";
  cached.window.name = "sliding";
  for (const GenerateOptions& options : {plain, sampled, guided, cached})
    for (const std::int32_t batch : {1, 3, 16}) {
      std::vector<std::size_t> order;
      const auto answers = model.generate_batch(questions(), options, batch, [&](std::size_t index, const Generation&) {
        order.push_back(index);
        return true;
      });
      ASSERT_TRUE(answers) << answers.error().message();
      ASSERT_EQ(answers->size(), questions().size());
      for (std::size_t i = 0; i < answers->size(); ++i) {
        const Generation one = *model.generate(questions()[i], options);
        const Generation& ours = (*answers)[i];
        EXPECT_EQ(ours.ids, one.ids) << "batch " << batch << " request " << i;
        EXPECT_EQ(ours.confidence, one.confidence);
        EXPECT_EQ(ours.text, one.text);
        EXPECT_EQ(ours.finish, one.finish);
        EXPECT_EQ(ours.stats.nfe, one.stats.nfe);
        EXPECT_EQ(ours.stats.rows_forwarded, one.stats.rows_forwarded);
      }
      std::sort(order.begin(), order.end());
      for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
      EXPECT_EQ(order.size(), questions().size());
    }
}

TEST(GenerateBatch, StopsWhenToldTo) {
  const LanguageModel model = *LanguageModel::load("");
  GenerateOptions options;
  options.length = 64;
  int heard = 0;
  const auto some =
      model.generate_batch(questions(), options, 1, [&](std::size_t, const Generation&) { return ++heard < 2; });
  ASSERT_TRUE(some);
  EXPECT_EQ(heard, 2);
  EXPECT_NE((*some)[1].finish, FinishReason::kCancelled);
  EXPECT_EQ((*some)[6].finish, FinishReason::kCancelled);
  std::stop_source stop;
  stop.request_stop();
  const auto none = model.generate_batch(questions(), options, 4, {}, stop.get_token());
  ASSERT_TRUE(none);
  for (const Generation& answer : *none) EXPECT_EQ(answer.finish, FinishReason::kCancelled);
}

TEST(GenerateBatch, EachRequestHasItsSeed) {
  const LanguageModel model = *LanguageModel::load("");
  GenerateOptions options;
  options.length = 32;
  options.temperature = 20;  // the model is sure of its answers
  const auto same = questions().front();
  const auto answers = model.generate_batch({same, same, same}, options, 2, {}, {}, {3, 4, 5});
  ASSERT_TRUE(answers) << answers.error().message();
  for (std::size_t i = 0; i < 3; ++i) {
    options.seed = 3 + i;
    EXPECT_EQ((*answers)[i].ids, model.generate(same, options)->ids) << i;
    EXPECT_EQ((*answers)[i].options.seed, 3 + i);
  }
  EXPECT_NE((*answers)[0].ids, (*answers)[1].ids);
}

TEST(Generate, AnAnswerThatIsStoppedSaysWhatWasAsked) {
  const LanguageModel model = *LanguageModel::load("");
  GenerateOptions options;
  options.length = 24;
  options.exact_length = true;
  options.decoder.name = "low-confidence";
  std::stop_source stop;
  stop.request_stop();
  const auto at_once = model.generate("3 + 4 =", options, {}, stop.get_token());
  ASSERT_TRUE(at_once);
  EXPECT_EQ(at_once->finish, FinishReason::kCancelled);
  EXPECT_FALSE(at_once->prompt_ids.empty());
  EXPECT_EQ(at_once->ids.size(), 24u);
  EXPECT_EQ(at_once->options.length, 24);
  int steps = 0;
  const auto later = model.generate("3 + 4 =", options, [&](const StepEvent&) { return ++steps < 3; });
  ASSERT_TRUE(later);
  EXPECT_EQ(later->finish, FinishReason::kCancelled);
  EXPECT_EQ(later->stats.nfe, 3);
  EXPECT_EQ(steps, 3);
}

TEST(GenerateBatch, RefusesWhatMakesNoSense) {
  const LanguageModel model = *LanguageModel::load("");
  EXPECT_FALSE(model.generate_batch(questions(), {}, 0));
  GenerateOptions options;
  options.length = 1 << 19;
  const auto answers = model.generate_batch(questions(), options, 2);
  ASSERT_FALSE(answers);
  EXPECT_NE(answers.error().where.find("request 0"), std::string::npos);
  options = {};
  options.length = 16;
  options.context = 64;
  const std::string endless(2000, 'x');
  const auto second = model.generate_batch({{{"user", "a"}}, {{"user", endless}}, {{"user", "b"}}}, options, 1);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().where.find("request 1"), 0u) << second.error().message();
}

}  // namespace
}  // namespace dllm
