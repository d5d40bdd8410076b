#include "eval/comparison.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "eval/accuracy_plot.h"

namespace dllm {
namespace {

TEST(Statistics, WilsonAgainstPublishedValues) {
  // Newcombe, Stat. Med. 17 (1998) 857, table I, method 3.
  const struct {
    std::int64_t r, n;
    double low, high;
  } cases[] = {{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0.0000, 0.1611}, {1, 29, 0.0061, 0.1718}};
  for (const auto& c : cases) {
    const Interval interval = wilson_interval(c.r, c.n);
    EXPECT_NEAR(interval.low, c.low, 5e-5) << c.r;
    EXPECT_NEAR(interval.high, c.high, 5e-5) << c.r;
  }
  EXPECT_EQ(wilson_interval(20, 20).high, 1);
  EXPECT_EQ(wilson_interval(0, 0).high, 1);
}

TEST(Statistics, PairedDifferences) {
  const PairedDifference none = paired_difference({50, 0, 0, 50});
  EXPECT_EQ(none.difference, 0);
  EXPECT_NEAR(none.interval.low, -none.interval.high, 1e-12);
  EXPECT_EQ(none.p_value, 1);
  const PairedDifference gain = paired_difference({36, 2, 12, 0});
  EXPECT_NEAR(gain.difference, 0.2, 1e-12);
  EXPECT_NEAR(gain.interval.low, 0.0569, 5e-5);
  EXPECT_NEAR(gain.interval.high, 0.3404, 5e-5);
  // 2 of 14 by a fair coin: 2 (1 + 14 + 91) / 2^14.
  EXPECT_NEAR(gain.p_value, 212.0 / 16384, 1e-12);
  const PairedDifference loss = paired_difference({36, 12, 2, 0});
  EXPECT_NEAR(loss.interval.low, -gain.interval.high, 1e-12);
  EXPECT_EQ(paired_difference({}).interval.high, 1);
}

EvalRecord record(bool correct, std::string text, std::int32_t nfe, double seconds) {
  EvalRecord made{.item = {}, .text = std::move(text), .correct = correct};
  made.stats.nfe = nfe;
  made.stats.committed_tokens = 64;
  made.stats.answer_tokens = 20;
  made.stats.rows_forwarded = 100 * nfe;
  made.stats.rows_scored = 30 * nfe;
  made.stats.seconds = seconds;
  return made;
}

std::vector<Contender> two() {
  std::vector<Contender> contenders(2);
  contenders[0].name = "base";
  contenders[1].name = "a<b";
  for (int i = 0; i < 4; ++i) {
    contenders[0].report.add(record(true, "x", 8, 0.1));
    contenders[1].report.add(record(i != 0, i < 2 ? "y" : "x", 2, 0.05));
  }
  return contenders;
}

TEST(Compare, RowsAndTables) {
  const auto contenders = two();
  const auto rows = compare(contenders);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows[0].agreement, 1);
  EXPECT_DOUBLE_EQ(rows[1].agreement, 0.5);
  EXPECT_DOUBLE_EQ(rows[1].against_first.difference, -0.25);
  EXPECT_DOUBLE_EQ(rows[1].milliseconds(), 50);
  EXPECT_DOUBLE_EQ(rows[1].rows_forwarded(), 200);
  EXPECT_DOUBLE_EQ(rows[1].rows_scored(), 60);
  const TextTable table = comparison_table(rows);
  ASSERT_EQ(table.rows[1].size(), table.columns.size());
  EXPECT_EQ(table.rows[1][1], "75.0");
  EXPECT_EQ(table.rows[1][3], "-25.0");
  EXPECT_EQ(table.rows[0][3], "");
  const auto json = comparison_json(contenders, rows);
  EXPECT_EQ(json["items"], 4);
  EXPECT_FALSE(json["configurations"][0].contains("against_first"));
  EXPECT_DOUBLE_EQ(json["configurations"][1]["ms_per_item"], 50);
  EXPECT_EQ(task_table(contenders).rows[1].back(), "75");
}

TEST(AccuracyPlot, HoldsEveryConfiguration) {
  const auto rows = compare(two());
  for (const std::string& name : plot_axis_names()) {
    const std::string svg = accuracy_plot(rows, plot_axis(name), "T & t");
    EXPECT_NE(svg.find("T &amp; t"), std::string::npos);
    EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    std::size_t circles = 0;
    for (auto at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++circles;
    EXPECT_EQ(circles, 2u);
  }
  EXPECT_EQ(plot_axis("nfe"), PlotAxis::kPasses);
}

/// One line each, cheapest first, coloured if the interval excludes zero; values off the scale are printed.
TEST(AccuracyPlot, SortsByCostAndColoursWhatDiffers) {
  std::vector<ComparisonRow> rows(4);
  const auto set = [&rows](std::size_t i, const char* name, std::int64_t passes, double difference, double half) {
    rows[i].name = name;
    rows[i].score.items = 100, rows[i].score.correct = 90, rows[i].score.nfe = 100 * passes;
    rows[i].against_first = {difference, {difference - half, difference + half}, 1};
  };
  set(0, "first", 30, 0, 0);
  set(1, "same", 20, 0.01, 0.02);
  set(2, "better", 10, 0.05, 0.02);
  set(3, "far", 40, -0.6, 0.05);
  const std::string svg = accuracy_plot(rows, PlotAxis::kPasses, "t");
  const auto at = [&svg](const std::string& name, const std::string& colour) {
    return svg.find("text-anchor=\"end\" fill=\"" + colour + "\">" + name + "</text>");
  };
  EXPECT_LT(at("better", "#2f7d4f"), at("same", "#777"));
  EXPECT_LT(at("same", "#777"), at("first", "#000"));
  EXPECT_LT(at("first", "#000"), at("far", "#c04020"));
  EXPECT_NE(at("far", "#c04020"), std::string::npos);
  EXPECT_NE(svg.find(">-60.0</text>"), std::string::npos);
}

}  // namespace
}  // namespace dllm
