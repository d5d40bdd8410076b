#include <gtest/gtest.h>

#include "eval/eval_report.h"
#include "eval/evaluate.h"
#include "eval/items.h"

namespace dllm {
namespace {

TEST(EvalItems, ReadsLinesAndSkipsEmptyOnes) {
  const auto items = parse_items(
      "{\"task\":\"a\",\"prompt\":\"p\",\"answer\":\"x\"}\n\n \r\n{\"prompt\":\"q\",\"answer\":\"y\",\"extra\":1}",
      "t");
  ASSERT_TRUE(items) << items.error().message();
  ASSERT_EQ(items->size(), 2u);
  EXPECT_EQ((*items)[0].task, "a");
  EXPECT_EQ((*items)[1].task, "default");
  EXPECT_EQ((*items)[1].line, 4);
}

TEST(EvalItems, ErrorsNameTheLine) {
  const std::string good = "{\"prompt\":\"p\",\"answer\":\"x\"}\n";
  for (const char* bad : {"{", "[1]", "{\"prompt\":\"p\"}", "{\"prompt\":1,\"answer\":\"x\"}",
                          "{\"task\":null,\"prompt\":\"p\",\"answer\":\"x\"}", "\xff"}) {
    const auto items = parse_items(good + good + bad, "file.jsonl");
    ASSERT_FALSE(items) << bad;
    EXPECT_EQ(items.error().code, ErrorCode::kInvalidFile);
    EXPECT_EQ(items.error().where, "file.jsonl, line 3");
  }
  EXPECT_FALSE(parse_items("\n\n", "t"));
  EXPECT_FALSE(read_items("/nonexistent/file.jsonl"));
  EXPECT_FALSE(read_items("/"));
}

TEST(ExactMatch, IgnoresWhiteSpaceAtTheEndOnly) {
  EXPECT_TRUE(exact_match("16", "16"));
  EXPECT_TRUE(exact_match("16 \n", "16"));
  EXPECT_TRUE(exact_match("16", "16\n"));
  EXPECT_FALSE(exact_match(" 16", "16"));
  EXPECT_FALSE(exact_match("16 17", "16"));
  EXPECT_FALSE(exact_match("", "16"));
  EXPECT_TRUE(exact_match("", " "));
}

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

std::vector<EvalItem> three_items() { return {{"b", "1", "one", 1}, {"a", "2", "two", 2}, {"b", "3", "three", 3}}; }

TEST(Evaluate, SumsByTaskAndOverAll) {
  std::size_t calls = 0;
  const auto report = evaluate(
      three_items(),
      [](const std::string& prompt) -> Expected<Generation> {
        if (prompt == "1") return answer_of("one\n", 4, 32);
        if (prompt == "2") return answer_of("wrong", 2, 32);
        return answer_of("three", 8, 64);
      },
      [&](const EvalReport& so_far, std::size_t total) {
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
  const std::string text = score_table(*report, false);
  EXPECT_NE(text.find("all       3     66.7     4.7    9.14"), std::string::npos) << text;
  EXPECT_EQ(score_table(*report, true).substr(0, 8), "| task |");
}

TEST(Evaluate, StopsAtACancelledAnswer) {
  const auto report = evaluate(three_items(), [](const std::string& prompt) -> Expected<Generation> {
    Generation generation = answer_of("one", 1, 1);
    if (prompt == "2") generation.finish = FinishReason::kCancelled;
    return generation;
  });
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->all.items, 1);
}

TEST(Evaluate, AnErrorNamesTheItem) {
  const auto report = evaluate(three_items(), [](const std::string& prompt) -> Expected<Generation> {
    if (prompt == "3") return Error{ErrorCode::kUsage, "too long", "", ""};
    return Generation{};
  });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().message(), "item of line 3: too long");
}

TEST(Evaluate, NothingGivesZerosNotNan) {
  const TaskScore none;
  EXPECT_EQ(none.accuracy(), 0);
  EXPECT_EQ(none.tokens_per_forward(), 0);
  EXPECT_EQ(none.tokens_per_second(), 0);
}

}  // namespace
}  // namespace dllm
