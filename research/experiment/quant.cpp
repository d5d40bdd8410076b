// DART's accuracy simulator as tables: what number formats, weight quantization and smoothing do to trained models.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/cli/calibration_flags.h"
#include "base/try.h"
#include "engine/load.h"
#include "eval/comparison.h"
#include "experiment/experiments.h"
#include "experiment/numerics_text.h"
#include "experiment/quant_models.h"
#include "quant/calibrated.h"

namespace dllm::app {
namespace {

/// A model in a profile: of the table's rows the first is what the others are compared with.
struct QuantRow {
  const char *weights, *label;
  const char *method, *masks;  ///< of `dllm quantize` to MXINT4; empty method: the model as it is, rounded to nearest
  Rotation rotation;
  std::string profile;  ///< a shipped one's name, or TOML
  bool everywhere;      ///< answered by the harder model too, whose answers take long
};

constexpr const char *kCalibrated = "gptq+y-clip", *kBest = "gptq+search+correct";

std::vector<QuantRow> quant_rows() {
  const auto smoothed = [](NumericsText text) {
    text.keys = text.values = "minmax";
    return text.toml();
  };
  const auto sampled = [](const char* precision) {
    NumericsText text = NumericsText::bf16();
    text.sampling = precision;
    return text.toml();
  };
  NumericsText key8;
  key8.key = "mxint8:32:ocp";
  constexpr Rotation kNo = Rotation::kNone;
  return {{"bf16", "bf16", "", "", kNo, "bf16", true},
          {"nearest", "w8a8kv8", "", "", kNo, "w8a8kv8", false},
          {"nearest", "mxfp8", "", "", kNo, "mxfp8", false},
          {"nearest", "fp16-q4_0", "", "", kNo, "fp16-q4_0", true},
          {"nearest", "mxfp4", "", "", kNo, "mxfp4", false},
          {"nearest", "w4a8kv4", "", "", kNo, "w4a8kv4", true},
          {"nearest, rotated", "rotated", "rtn", "", Rotation::kOffline, "w4a8kv4", false},
          {"gptq, no masks", "gptq, none", "gptq", "none", kNo, "w4a8kv4", false},
          {"gptq, random masks", "gptq, random", "gptq", "random", kNo, "w4a8kv4", false},
          {"gptq, masks of runs", "gptq, runs", "gptq", "decoding", kNo, "w4a8kv4", false},
          {"gptq+y-clip", "+ y-clip", kCalibrated, "decoding", kNo, "w4a8kv4", false},
          {"gptq+y-clip", "+ smoothing", kCalibrated, "decoding", kNo, smoothed({}), true},
          {"gptq+search+correct", "best", kBest, "decoding", kNo, smoothed({}), true},
          {"gptq+search+correct", "best, K8", kBest, "decoding", kNo, smoothed(key8), true},
          {"bf16", "f32 draws", "", "", kNo, sampled("f32"), false},
          {"bf16", "bf16 draws", "", "", kNo, sampled("bf16"), false},
          {"bf16", "mxfp8 draws", "", "", kNo, sampled("mxfp8"), false}};
}
constexpr std::size_t kNearest = 5, kSmoothed = 11, kBestRow = 12;

struct QuantSubject {
  std::string name, model, items, calibration;
  std::int32_t answers, masks, calibrated;  ///< items
  bool dual;                                ///< so that most passes refine what a warm pass has stored
};

std::vector<QuantSubject> quant_subjects(const LabInputs& inputs) {
  const auto share = [&](std::int32_t of) { return share_of_limit(inputs, of); };
  return {
      {"embedded model", "", inputs.unseen_embedded, inputs.calibration_embedded, share(2), share(3), share(2), false},
      {"harder model", inputs.model, inputs.unseen, inputs.calibration, share(10), share(10), share(6), true}};
}

/// A row's model, of a subject, ready to answer.
Expected<LanguageModel> open_row(const QuantSubject& subject, const QuantRow& row, const QuantFolder& folder,
                                 std::int64_t* bytes) {
  std::string path = subject.model;
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  DLLM_TRY(const ModelSource source, open_or_embedded(subject.model));
  *bytes = 0;
  for (const SourceTensor& tensor : source.tensors) *bytes += static_cast<std::int64_t>(byte_size(tensor));
  if (*row.method != '\0') {
    path = fmt::format("{}/{}-{}-{}.gguf", folder.path(), row.method, row.masks, static_cast<int>(row.rotation));
    CalibrationSetting setting;
    setting.method = row.method;
    setting.limit = subject.calibrated;
    if (*row.masks != '\0') setting.path = subject.calibration, setting.masks = row.masks;
    WriteOptions options;
    options.type = "MXINT4";
    options.threads = threads;
    options.rotation = row.rotation;
    DLLM_TRY(const CalibrationOptions calibration, setting.options());
    DLLM_TRY(const WriteReport report, write_quantized(source, options, calibration, path));
    *bytes = report.bytes_out;
  }
  return open_in_numerics(path, row.profile, folder);
}

Expected<EvalReport> row_answers(Lab& lab, const QuantSubject& subject, const LanguageModel& model, EvalSet items) {
  items.items.resize(std::min(items.items.size(), static_cast<std::size_t>(subject.answers)));
  GenerateOptions options;
  if (subject.dual) DLLM_CHECK_OK(options.set("cache", "dual"));
  EvalModel bound;
  bound.answer = [&](const std::string& prompt) { return model.generate(prompt, options, {}, lab.stop()); };
  DLLM_TRY(EvalReport report, evaluate(items, Scoring::kGenerate, bound));
  if (!report.complete) return Error{ErrorCode::kCancelled, "the experiment was interrupted", "", ""};
  return report;
}

std::string points_of(const ComparisonRow& row) {
  const PairedDifference& d = row.against_first;
  return fmt::format("{:+.1f} points ({:+.1f} to {:+.1f})", 100 * d.difference, 100 * d.interval.low,
                     100 * d.interval.high);
}

/// The paper's claim is within a point, which an interval may leave open.
std::string quant_verdict(const QuantSubject& subject, const ComparisonRow& nearest, const ComparisonRow& smoothed,
                          const ComparisonRow& best) {
  const PairedDifference& d = smoothed.against_first;
  const char* finding = 100 * d.difference >= -1 ? "reproduced" : d.interval.high < -0.01 ? "not reproduced" : "open";
  return fmt::format(
      "{}: {}. W4A8KV4 to nearest has {} against BF16, with GPTQ, y-clip and smoothing {}, with the best calibration "
      "{}, and the verdict of {:.1f} %, {:.1f} % and {:.1f} % of the answers. ",
      subject.name, finding, points_of(nearest), points_of(smoothed), points_of(best), 100 * nearest.same_verdict,
      100 * smoothed.same_verdict, 100 * best.same_verdict);
}

/// All rows of a subject, added to the figure; the verdict's part.
Expected<std::string> add_subject(Lab& lab, const QuantSubject& subject, std::size_t part, Figure& figure) {
  const std::vector<QuantRow> rows = quant_rows();
  DLLM_TRY(const QuantFolder folder, QuantFolder::make());
  DLLM_TRY(const EvalSet items, read_eval_set(subject.items));
  std::optional<LanguageModel> first;
  std::vector<Contender> contenders;
  std::vector<std::size_t> answered;
  std::vector<Divergence> masks;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    DLLM_CHECK_OK(lab.begin_part(part * rows.size() + i, 2 * rows.size()));
    DLLM_TRY(LanguageModel model, open_row(subject, rows[i], folder, &sizes.emplace_back()));
    if (!first) first.emplace(std::move(model));
    const LanguageModel& used = i == 0 ? *first : model;
    DLLM_TRY(masks.emplace_back(), mask_divergence(lab, *first, used, items, subject.masks));
    if (!rows[i].everywhere && subject.dual) continue;
    DLLM_TRY(EvalReport report, row_answers(lab, subject, used, items));
    contenders.push_back({rows[i].label, "", std::move(report)});
    answered.push_back(i);
  }
  const std::vector<ComparisonRow> compared = compare(contenders);
  figure.series.push_back({subject.name, {}});
  const auto compared_at = [&](std::size_t i) -> const ComparisonRow* {
    const auto found = std::ranges::find(answered, i);
    return found == answered.end() ? nullptr : &compared[static_cast<std::size_t>(found - answered.begin())];
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Divergence& d = masks[i];
    std::vector<nlohmann::ordered_json> cells = {subject.name, i + 1, rows[i].weights, rows[i].label,
                                                 static_cast<double>(sizes[i]) / 1e6};
    if (const ComparisonRow* const row = compared_at(i)) {
      const PairedDifference& points = row->against_first;
      for (const double cell : {100 * row->score.accuracy(), 100 * points.difference, 100 * points.interval.low,
                                100 * points.interval.high, 100 * row->same_verdict, row->score.tokens_per_forward()})
        cells.emplace_back(cell);
    } else {
      cells.insert(cells.end(), 6, nullptr);
    }
    for (const double cell :
         {1e3 * d.kl(), 100 * d.top1_agreement(), 1e3 * d.negative_log_likelihood(), 100 * d.calibration_error()})
      cells.emplace_back(cell);
    figure.rows.push_back(std::move(cells));
    if (d.kl() > 0) figure.series.back().points.emplace_back(static_cast<double>(i), 1e3 * d.kl());
  }
  return quant_verdict(subject, *compared_at(kNearest), *compared_at(kSmoothed), *compared_at(kBestRow));
}

}  // namespace

Expected<Figure> quant(Lab& lab) {
  const std::vector<QuantSubject> subjects = quant_subjects(lab.inputs());
  Figure figure{
      .name = "quant",
      .title = "Answers in the number formats of an accelerator",
      .claim = "W4A8KV4 with GPTQ, y-clip and smoothing stays within 1.1 points of BF16.",
      .columns = {"model", "row", "weights", "profile", "MB", "correct %", "points to bf16", "from", "to", "as bf16 %",
                  "tokens per pass", "KL, 0.001 nats", "same token %", "0.001 nats per token", "calibration error %"},
      .x_name = "row of the table",
      .y_name = "KL of predicted masks to BF16, 0.001 nats",
      .log_y = true};
  for (std::size_t i = 0; i < quant_rows().size(); ++i) figure.x_labels.push_back(fmt::format("{}", i + 1));
  for (std::size_t s = 0; s < subjects.size(); ++s) {
    const QuantSubject& subject = subjects[s];
    figure.setting += fmt::format(
        "{}: the first {} items of {}, {}which no choice of this project has used (masks: of the first {}, one canvas "
        "each); calibration with the first {} of {}. ",
        s == 0 ? "Embedded model" : "Harder model", subject.answers, subject.items,
        subject.dual ? "with a dual cache, " : "", subject.masks, subject.calibrated, subject.calibration);
    DLLM_TRY(const std::string verdict, add_subject(lab, subject, s, figure));
    figure.verdict += verdict;
  }
  figure.setting +=
      "\"Weights\" says how the matrices came to MXINT4 in the file; \"nearest\": the profile rounds them. \"+ "
      "smoothing\", \"best\": K and V with centres and factors of their channels (minmax, alpha 1); K8: keys in "
      "MXINT8. \"... draws\": BF16 with probabilities in another precision. \"As bf16\": right in both or wrong in "
      "both. Differences are paired, with 95 % intervals.";
  figure.verdict.pop_back();
  return figure;
}

}  // namespace dllm::app
