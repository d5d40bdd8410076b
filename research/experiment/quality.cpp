// The quality ablation of llada.cpp: what each technique does to the answers of trained models.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "eval/comparison.h"
#include "eval/eval_set.h"
#include "experiment/experiments.h"

namespace dllm::app {
namespace {

struct QualityMode {
  const char *name, *label, *decoding;
};
/// The first is what the others are compared with. The paper's modes are "prefix", "speculative" and "refresh".
constexpr QualityMode kQualityModes[] = {{"prefix cache, one token per pass", "prefix cache", "prefix"},
                                         {"dual cache, threshold 0.9", "dual cache", "dual"},
                                         {"+ speculative, threshold 0.9", "speculative", "speculative"},
                                         {"+ speculative, threshold 0.7", "from 0.7", "hasty"},
                                         {"+ staged states", "staged states", "states"},
                                         {"+ sparse refresh on the host", "refresh", "refresh"},
                                         {"+ sparse refresh in the passes", "in the passes", "folded"},
                                         {"+ refreshed rows show masks", "as masks", "masked"}};
constexpr std::size_t kSpeculative = 2, kHasty = 3, kRefresh = 5;
/// Points that the whole system may lose for the claim to hold.
constexpr double kAllowed = 1;

struct QualitySubject {
  std::string name, model, items;
  std::int32_t tokens;  ///< of the longest answer
};

std::string points_text(const PairedDifference& d) {
  return fmt::format("{:+.1f} points ({:+.1f} to {:+.1f})", 100 * d.difference, 100 * d.interval.low,
                     100 * d.interval.high);
}

std::string quality_verdict(const QualitySubject& subject, const std::vector<ComparisonRow>& rows) {
  const PairedDifference &alone = rows[kSpeculative].against_first, &hasty = rows[kHasty].against_first,
                         &whole = rows[kRefresh].against_first;
  const bool close = 100 * whole.difference >= -kAllowed;
  const char* finding =
      close && alone.interval.high < 0   ? "reproduced"
      : close && hasty.interval.high < 0 ? "reproduced from 0.7, where revision shows tokens: speculation alone loses "
                                           "there, at 0.9 it loses nothing that these items show"
      : close ? "not reproduced, as speculation alone loses nothing that these items show at either threshold"
      : whole.difference > std::min(alone.difference, hasty.difference)
          ? "reproduced in part: revision wins back some of the loss, not all but a point"
          : "not reproduced: revision does not win back the loss";
  return fmt::format(
      "{}: {}. Against the prefix cache speculation alone has {}, from 0.7 {}, and the whole system {}, in {:.1f}, "
      "{:.1f}, {:.1f} and {:.1f} passes. ",
      subject.name, finding, points_text(alone), points_text(hasty), points_text(whole), rows[0].score.mean_nfe(),
      rows[kSpeculative].score.mean_nfe(), rows[kHasty].score.mean_nfe(), rows[kRefresh].score.mean_nfe());
}

/// Passes of the second path per item.
double second_passes(const EvalReport& report) {
  double sum = 0;
  for (const EvalRecord& record : report.records) sum += record.stats.second_passes;
  return sum / static_cast<double>(report.records.size());
}

}  // namespace

Expected<Figure> quality(Lab& lab) {
  Figure figure{.name = "quality",
                .title = "Accuracy in the modes of the answers",
                .setting = fmt::format(
                    "The first {} items of {} (embedded model, at most 64 tokens) and of {} ({}, at most 192), which "
                    "no choice of this project has used; blocks of 32, greedy. Modes with a + have a lookahead at 4 "
                    "masks, widened by the stairs of {} on mobile-sm8750, and a dual cache, as in answer-latency; the "
                    "first dual cache has neither lookahead nor drafts. Staged states: tokens are shown from 0.7 and "
                    "final from 0.9. Differences are paired, with 95 % intervals.",
                    lab.inputs().limit, lab.inputs().unseen_embedded, lab.inputs().unseen, lab.inputs().model,
                    lab.inputs().shape),
                .claim =
                    "speculation alone lowers the accuracy, and progressive revision returns it to that of the "
                    "baseline (Tab. 5; its numbers are not readable in our copy).",
                .columns = {"model", "mode", "correct %", "from", "to", "points to the first", "from", "to", "passes",
                            "rows", "passes on the host"},
                .x_name = "mode",
                .y_name = "correct answers, %"};
  for (const QualityMode& mode : kQualityModes) figure.x_labels.emplace_back(mode.label);
  const QualitySubject subjects[] = {{"embedded model", "", lab.inputs().unseen_embedded, 64},
                                     {"harder model", lab.inputs().model, lab.inputs().unseen, 192}};
  std::size_t part = 0;
  double least = 100;
  for (const QualitySubject& subject : subjects) {
    DLLM_TRY(EvalSet items, read_eval_set(subject.items));
    items.items.resize(std::min(items.items.size(), static_cast<std::size_t>(lab.inputs().limit)));
    std::vector<Contender> contenders;
    for (const QualityMode& mode : kQualityModes) {
      DLLM_CHECK_OK(lab.begin_part(part++, 2 * std::size(kQualityModes)));
      DLLM_TRY(EvalReport report, lab.answers(subject.model, items, mode.decoding, subject.tokens));
      contenders.push_back({mode.name, "", std::move(report)});
    }
    const std::vector<ComparisonRow> rows = compare(contenders);
    figure.series.push_back({subject.name, {}});
    for (std::size_t m = 0; m < rows.size(); ++m) {
      const ComparisonRow& row = rows[m];
      const PairedDifference& d = row.against_first;
      figure.rows.push_back({subject.name, row.name, 100 * row.score.accuracy(), 100 * row.accuracy.low,
                             100 * row.accuracy.high, 100 * d.difference, 100 * d.interval.low, 100 * d.interval.high,
                             row.score.mean_nfe(), row.rows_forwarded(), second_passes(contenders[m].report)});
      figure.series.back().points.emplace_back(static_cast<double>(m), 100 * row.score.accuracy());
      least = std::min(least, 100 * row.score.accuracy());
    }
    figure.verdict += quality_verdict(subject, rows);
  }
  figure.y_low = std::max(0.0, 5 * std::floor(least / 5 - 1));
  figure.verdict.pop_back();
  return figure;
}

}  // namespace dllm::app
