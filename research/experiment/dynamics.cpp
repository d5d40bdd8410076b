// How a trained model's answers come about: llada.cpp's figures on the tail of a block and the order of commits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/try.h"
#include "eval/eval_set.h"
#include "eval/statistics.h"
#include "experiment/experiments.h"

namespace dllm::app {
namespace {

constexpr std::int32_t kBlock = 32, kTokens = 192, kMostItems = 32, kFewMasks = 4;
constexpr double kFinal = 0.9;

/// One block of an answer. Passes count from the first one that ran it.
struct DecodedBlock {
  std::vector<std::int32_t> passes;  ///< in which each position was committed
  std::vector<double> confidence;
  std::int32_t answer = 0;  ///< positions up to and including the stop token
};

/// Blocks that were decoded to their end, of all answers.
std::vector<DecodedBlock> decoded_blocks(const std::vector<Generation>& answers) {
  std::vector<DecodedBlock> blocks;
  for (const Generation& answer : answers) {
    std::int32_t begin = 0;  // pass
    for (std::size_t from = 0; from + kBlock <= answer.ids.size(); from += kBlock) {
      const auto first = answer.commit_step.begin() + static_cast<std::ptrdiff_t>(from);
      DecodedBlock block{{first, first + kBlock}, {}, 0};
      if (std::ranges::min(block.passes) < 0) break;
      block.confidence.assign(answer.confidence.begin() + static_cast<std::ptrdiff_t>(from),
                              answer.confidence.begin() + static_cast<std::ptrdiff_t>(from) + kBlock);
      const std::int32_t next = std::ranges::max(block.passes) + 1;
      for (std::int32_t& pass : block.passes) pass -= begin;
      begin = next;
      block.answer = std::clamp(answer.stats.answer_tokens - static_cast<std::int32_t>(from), 0, kBlock);
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

/// What the blocks of one threshold show.
struct TailStats {
  double passes = 0, few = 0;        ///< few: of the passes, those that begin with at most kFewMasks masks
  double committed = 0, unsure = 0;  ///< unsure: committed below kFinal
  void add(const DecodedBlock& block) {
    const std::int32_t last = std::ranges::max(block.passes);
    for (std::int32_t pass = 0; pass <= last; ++pass) {
      const auto masks = std::ranges::count_if(block.passes, [pass](std::int32_t p) { return p >= pass; });
      ++passes;
      if (masks <= kFewMasks) ++few;
    }
    committed += kBlock;
    unsure += static_cast<double>(std::ranges::count_if(block.confidence, [](double c) { return c < kFinal; }));
  }
};

/// Spearman's rank correlation of values with their places; ties have their mean rank.
double rank_correlation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double cross = 0, squares = 0, places = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto below = static_cast<double>(std::ranges::count_if(values, [&](double v) { return v < values[i]; }));
    const auto equal = static_cast<double>(std::ranges::count(values, values[i]));
    const double rank = below + (equal - 1) / 2 - (n - 1) / 2, place = static_cast<double>(i) - (n - 1) / 2;
    cross += rank * place;
    squares += rank * rank;
    places += place * place;
  }
  return squares > 0 ? cross / std::sqrt(squares * places) : 0;
}

Expected<EvalSet> dynamic_items(const Lab& lab) {
  DLLM_TRY(EvalSet items, read_eval_set(lab.inputs().unseen));
  const auto count = static_cast<std::size_t>(std::min(lab.inputs().limit, kMostItems));
  items.items.resize(std::min(items.items.size(), count));
  return items;
}

std::string dynamic_setting(const Lab& lab, const EvalSet& items) {
  return fmt::format("{} answers {} items of {} with at most {} tokens in blocks of {} and a prefix cache.",
                     lab.inputs().model, items.items.size(), lab.inputs().unseen, kTokens, kBlock);
}

}  // namespace

Expected<Figure> block_tail(Lab& lab) {
  DLLM_TRY(const EvalSet items, dynamic_items(lab));
  Figure figure{
      .name = "block-tail",
      .title = "The tail of a block, by the threshold of commits",
      .setting = dynamic_setting(lab, items) +
                 " Only blocks that were decoded to their end. Few masks: passes that begin with at most 4 masks left "
                 "in the block. Unsure: positions that were committed below 0.9. Scored: rows that reach the LM head, "
                 "of the rows that run.",
      .claim =
          "many passes have few masks left (Fig. 5a); a lower threshold commits more tokens per pass, of which more "
          "stay below 0.9 (Fig. 5b); most decisions about the output can be skipped (Fig. 5c).",
      .columns = {"threshold", "tokens per pass", "passes with few masks %", "unsure %", "scored %", "correct %",
                  "from", "to"},
      .x_name = "threshold of commits",
      .y_name = "%"};
  figure.series = {{"passes with few masks", {}}, {"unsure", {}}, {"scored", {}}, {"correct", {}}};
  constexpr double kThresholds[] = {0.5, 0.6, 0.7, 0.8, 0.9, 0.95};
  double least_few = 100, most_few = 0, least_scored = 100, most_scored = 0;
  for (const double threshold : kThresholds) {
    DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), std::size(kThresholds)));
    std::vector<Generation> answers;
    DLLM_TRY(const EvalReport report,
             lab.answers(lab.inputs().model, items, fmt::format("threshold {}", threshold), kTokens, &answers));
    TailStats tail;
    for (const DecodedBlock& block : decoded_blocks(answers)) tail.add(block);
    const Interval correct = wilson_interval(report.all.correct, report.all.items);
    const double cells[] = {
        threshold,
        tail.committed / tail.passes,
        100 * tail.few / tail.passes,
        100 * tail.unsure / tail.committed,
        100 * static_cast<double>(report.all.rows_scored) / static_cast<double>(report.all.rows_forwarded),
        100 * report.all.accuracy(),
        100 * correct.low,
        100 * correct.high};
    least_few = std::min(least_few, cells[2]), most_few = std::max(most_few, cells[2]);
    least_scored = std::min(least_scored, cells[4]), most_scored = std::max(most_scored, cells[4]);
    figure.rows.emplace_back(std::begin(cells), std::end(cells));
    for (std::size_t i = 0; i < figure.series.size(); ++i)
      figure.series[i].points.emplace_back(static_cast<double>(figure.x_labels.size()), cells[2 + i]);
    figure.x_labels.push_back(fmt::format("{}", threshold));
  }
  const auto end = [&figure](bool last, std::size_t column) {
    return (last ? figure.rows.back() : figure.rows.front())[column].get<double>();
  };
  figure.verdict = fmt::format(
      "{}: {:.0f} to {:.0f} % of the passes begin with at most 4 masks. From a threshold of 0.5 to 0.95 tokens per "
      "pass go from {:.2f} to {:.2f} and unsure positions from {:.1f} to {:.1f} %. Only masks of the block are scored, "
      "{:.0f} to {:.0f} % of the rows.",
      end(false, 1) > end(true, 1) && end(false, 3) > end(true, 3) ? "reproduced in shape" : "not reproduced",
      least_few, most_few, end(false, 1), end(true, 1), end(false, 3), end(true, 3), least_scored, most_scored);
  return figure;
}

Expected<Figure> commit_order(Lab& lab) {
  DLLM_TRY(const EvalSet items, dynamic_items(lab));
  Figure figure{.name = "commit-order",
                .title = "When the positions of a block are committed",
                .setting = dynamic_setting(lab, items) +
                           " Means over blocks by position, up to the stop token; passes count from the block's first. "
                           "Out of order: an earlier position of the block was still masked after the pass.",
                .claim = "positions further to the right are committed later on average (Fig. 8).",
                .columns = {"position", "threshold 0.9: blocks", "pass", "confidence", "out of order %",
                            "one per pass: blocks", "pass", "confidence", "out of order %"},
                .x_name = "position in the block",
                .y_name = "mean pass of the commit"};
  figure.series = {{"threshold 0.9", {}}, {"one token per pass", {}}};
  const char* const decodings[] = {"threshold 0.9", "prefix"};
  double correlation[2] = {}, disorder[2] = {};
  for (std::int64_t p = 0; p < kBlock; ++p) figure.rows.push_back({p});
  for (std::size_t s = 0; s < std::size(decodings); ++s) {
    DLLM_CHECK_OK(lab.begin_part(s, std::size(decodings)));
    std::vector<Generation> answers;
    DLLM_TRY(const EvalReport report, lab.answers(lab.inputs().model, items, decodings[s], kTokens, &answers));
    const std::vector<DecodedBlock> blocks = decoded_blocks(answers);
    std::vector<double> means;
    double early = 0, all = 0;
    for (std::size_t p = 0; p < static_cast<std::size_t>(kBlock); ++p) {
      double count = 0, pass = 0, confidence = 0, out = 0;
      for (const DecodedBlock& block : blocks) {
        if (static_cast<std::int32_t>(p) >= block.answer) continue;
        const auto before = std::ranges::subrange(block.passes.begin(), block.passes.begin() + static_cast<int>(p));
        ++count;
        pass += block.passes[p];
        confidence += block.confidence[p];
        if (std::ranges::any_of(before, [&](std::int32_t other) { return other > block.passes[p]; })) ++out;
      }
      early += out, all += count;
      std::vector<nlohmann::ordered_json>& row = figure.rows[p];
      row.emplace_back(count);
      for (const double sum : {pass, confidence, 100 * out})
        row.push_back(count > 0 ? nlohmann::ordered_json(sum / count) : nlohmann::ordered_json());
      if (count == 0) continue;
      means.push_back(pass / count);
      figure.series[s].points.emplace_back(static_cast<double>(p), pass / count);
    }
    correlation[s] = rank_correlation(means);
    disorder[s] = all > 0 ? 100 * early / all : 0;
  }
  const double least = std::min(correlation[0], correlation[1]);
  figure.verdict = fmt::format(
      "{}: the rank correlation of position and mean pass is {:.2f} with threshold 0.9 and {:.2f} with one token per "
      "pass (1: always later); {:.0f} and {:.0f} % of the tokens are committed before one to their left.",
      least > 0.8   ? "reproduced"
      : least > 0.3 ? "reproduced as a trend only"
                    : "not reproduced",
      correlation[0], correlation[1], disorder[0], disorder[1]);
  return figure;
}

}  // namespace dllm::app
