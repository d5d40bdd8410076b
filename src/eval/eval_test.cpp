#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "eval/eval_report.h"
#include "eval/evaluate.h"

namespace dllm {
namespace {

Generation answer_of(std::string text, std::int32_t nfe, std::int32_t committed) {
  Generation generation;
  generation.text = std::move(text);
  generation.finish = FinishReason::kStop;
  generation.stats.nfe = nfe;
  generation.stats.committed_tokens = committed;
  generation.stats.answer_tokens = committed / 2;
  generation.stats.seconds = 0.5;
  return generation;
}

EvalItem item(std::string task, std::string prompt, std::string answer, std::int64_t line) {
  EvalItem made;
  made.task = std::move(task);
  made.prompt = std::move(prompt);
  made.answer = std::move(answer);
  made.line = line;
  return made;
}

EvalSet three_items() {
  return {find_task_kind("exact"), {item("b", "1", "one", 1), item("a", "2", "two", 2), item("b", "3", "three", 3)}};
}

using Answerer = std::function<Expected<Generation>(const std::string&)>;

EvalModel answering(Answerer answer) {
  EvalModel model;
  model.answer = std::move(answer);
  return model;
}

TEST(Evaluate, SumsByTaskAndOverAll) {
  std::size_t calls = 0;
  const auto report =
      evaluate(three_items(), Scoring::kGenerate, answering([](const std::string& prompt) -> Expected<Generation> {
                 if (prompt == "1") return answer_of("one\n", 4, 32);
                 if (prompt == "2") return answer_of("wrong", 2, 32);
                 return answer_of("three", 8, 64);
               }),
               {}, [&](const EvalReport& so_far, std::size_t total) {
                 EXPECT_EQ(so_far.records.size(), ++calls);
                 EXPECT_EQ(total, 3u);
               });
  ASSERT_TRUE(report);
  EXPECT_EQ(calls, 3u);
  ASSERT_EQ(report->tasks.size(), 2u);
  EXPECT_EQ(report->tasks[0].task, "a");
  EXPECT_DOUBLE_EQ(report->tasks[0].accuracy(), 0);
  EXPECT_DOUBLE_EQ(report->tasks[1].accuracy(), 1);
  EXPECT_DOUBLE_EQ(report->tasks[1].mean_nfe(), 6);
  EXPECT_DOUBLE_EQ(report->tasks[1].tokens_per_forward(), 8);
  EXPECT_DOUBLE_EQ(report->all.tokens_per_second(), 64 / 1.5);
  EXPECT_NEAR(report->all.accuracy(), 2.0 / 3, 1e-12);
  EXPECT_TRUE(report->complete);

  const auto json = report_json(*report);
  EXPECT_EQ(json["tasks"]["b"]["correct"], 2);
  EXPECT_EQ(json["records"][1]["correct"], false);
  EXPECT_EQ(json["records"][2]["line"], 3);
  const TextTable table = score_table(*report);
  EXPECT_EQ(table.rows.back(), (std::vector<std::string>{"all", "3", "66.7", "20.8-93.9", "4.7", "9.14", "42.7"}));
}

TEST(Evaluate, StopsAtACancelledAnswer) {
  const auto report =
      evaluate(three_items(), Scoring::kGenerate, answering([](const std::string& prompt) -> Expected<Generation> {
                 Generation generation = answer_of("one", 1, 1);
                 if (prompt == "2") generation.finish = FinishReason::kCancelled;
                 return generation;
               }));
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->all.items, 1);
}

TEST(Evaluate, AnErrorNamesTheItem) {
  const auto report =
      evaluate(three_items(), Scoring::kGenerate, answering([](const std::string& prompt) -> Expected<Generation> {
                 if (prompt == "3") return Error{ErrorCode::kUsage, "too long", "", ""};
                 return Generation{};
               }));
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message(), "item of line 3: too long");
}

TEST(Evaluate, TakesTheLikeliestChoiceAndTheLikeliestPerByte) {
  EvalItem question = item("q", "p", "bb", 1);
  question.choices = {"a", "bbbbbbbbbb"};
  question.label = 1;
  EvalModel model;
  model.likelihoods = [](const std::string&, const std::vector<std::string>& targets, std::uint32_t number) {
    EXPECT_EQ(number, 1u);
    EXPECT_EQ(targets, (std::vector<std::string>{"a", "bbbbbbbbbb"}));
    return Expected(std::vector<TargetLikelihood>{{-2.0, 3, 7}, {-5.0, 3, 7}});
  };
  const auto report = evaluate({find_task_kind("choice"), {question}}, Scoring::kChoices, model);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_FALSE(report->records[0].correct);   // -2 beats -5
  EXPECT_TRUE(*report->records[0].per_byte);  // -2 per byte loses to -0.5 per byte
  EXPECT_EQ(report->records[0].text, "a");
  EXPECT_EQ(report->all.nfe, 14);
  EXPECT_DOUBLE_EQ(report->all.per_byte_accuracy(), 1);
  EXPECT_EQ(score_table(*report).columns[3].title, "per byte %");
}

TEST(Evaluate, SumsLikelihoodsOfAnswers) {
  EvalModel model;
  model.likelihoods = [](const std::string&, const std::vector<std::string>& targets, std::uint32_t) {
    return Expected(std::vector<TargetLikelihood>{{-1.5, static_cast<std::int32_t>(targets.front().size()), 2}});
  };
  const auto report = evaluate(three_items(), Scoring::kLikelihood, model);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->all.target_tokens, 11);
  EXPECT_DOUBLE_EQ(report->all.loss_per_token(), 4.5 / 11);
  EXPECT_EQ(report_json(*report)["records"][0].contains("correct"), false);
}

TEST(Evaluate, RefusesAScoringThatTheKindLacks) {
  const auto report = evaluate(three_items(), Scoring::kChoices, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::kUsage);
}

TEST(Evaluate, NothingGivesZerosNotNan) {
  const TaskScore none;
  EXPECT_EQ(none.accuracy(), 0);
  EXPECT_EQ(none.tokens_per_forward(), 0);
  EXPECT_EQ(none.tokens_per_second(), 0);
  EXPECT_EQ(none.loss_per_token(), 0);
}

TEST(TextTable, Forms) {
  const TextTable table = {{{"name", true}, {"x"}}, {{"a|b", "1"}, {"é, \"q\"", "22"}}};
  EXPECT_EQ(table.aligned(), "name      x\na|b       1\né, \"q\"   22\n");
  EXPECT_EQ(table.markdown(), "| name   |   x |\n|--------|----:|\n| a|b    |   1 |\n| é, \"q\" |  22 |\n");
  EXPECT_EQ(table.csv(), "name,x\na|b,1\n\"é, \"\"q\"\"\",22\n");
}

}  // namespace
}  // namespace dllm
