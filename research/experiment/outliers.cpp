// DART's smoothing of K and V: the power of the factors, and whether outliers remain in their channels.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/try.h"
#include "eval/eval_set.h"
#include "eval/statistics.h"
#include "experiment/experiments.h"
#include "experiment/numerics_text.h"
#include "experiment/quant_models.h"
#include "npu_backend/accuracy/kv_cache.h"

namespace dllm::app {
namespace {

using npu::accuracy::ChannelFactors, npu::accuracy::LaneKvCache;

struct OutlierSubject {
  std::string name, model, items;
  std::int32_t count;  ///< items
};

std::vector<OutlierSubject> outlier_subjects(const LabInputs& inputs, std::int32_t embedded, std::int32_t harder) {
  return {{"embedded model", "", inputs.unseen_embedded, share_of_limit(inputs, embedded)},
          {"harder model", inputs.model, inputs.unseen, share_of_limit(inputs, harder)}};
}

constexpr double kAlphas[] = {0, 0.25, 0.5, 0.75, 1};
/// A channel is an outlier if its largest distance from 0 is this many times the mean of its head's.
constexpr double kOutlier = 2;

/// The largest magnitudes of channels in one full pass: [layer][KV head][channel], keys first, then values.
using Magnitudes = std::vector<std::vector<float>>;

/// `ids` are prompt and canvas. Factors of the smoothing with alpha 1 and the centre at 0 would be the magnitudes; the
/// middle of smallest and largest is the nearest that profiles have, so the centre's distance is added.
Expected<Magnitudes> magnitudes_of(const BenchModel& model, const std::vector<TokenId>& ids) {
  const auto size = static_cast<Position>(ids.size());
  DLLM_TRY(const auto cache, model.backend().make_cache(size));
  SequenceStep step;
  step.cache = cache.get();
  for (Position p = 0; p < size; ++p) step.plan.rows.push_back({p, ids[static_cast<std::size_t>(p)]});
  step.plan.visible = {{0, size}};
  step.plan.scored = {static_cast<std::int32_t>(size) - 1};
  DLLM_CHECK_OK(model.backend().forward({&step, 1}));
  const auto& lanes = dynamic_cast<const LaneKvCache&>(*cache);
  Magnitudes all;
  for (std::int32_t layer = 0; layer < model.model->desc().layers; ++layer)
    for (const auto side : {&LaneKvCache::Segment::k, &LaneKvCache::Segment::v})
      for (const ChannelFactors& head : lanes.segments(layer).back().*side) {
        std::vector<float>& one = all.emplace_back();
        for (std::size_t c = 0; c < head.factor.size(); ++c) one.push_back(std::abs(head.centre[c]) + head.factor[c]);
      }
  return all;
}

/// Indices of the outliers of a head.
std::vector<std::size_t> outliers_of(const std::vector<float>& head) {
  double mean = 0;
  for (const float x : head) mean += static_cast<double>(x) / static_cast<double>(head.size());
  std::vector<std::size_t> found;
  for (std::size_t c = 0; c < head.size(); ++c)
    if (static_cast<double>(head[c]) > kOutlier * mean) found.push_back(c);
  return found;
}

struct Persistence {
  double channels = 0, outliers = 0, kept = 0, appeared = 0, largest = 0;
  void add(const std::vector<float>& warm, const std::vector<float>& later) {
    const std::vector<std::size_t> before = outliers_of(warm), after = outliers_of(later);
    double mean = 0;
    for (const float x : warm) mean += static_cast<double>(x) / static_cast<double>(warm.size());
    largest = std::max(largest, static_cast<double>(std::ranges::max(warm)) / mean);
    channels += static_cast<double>(warm.size());
    outliers += static_cast<double>(before.size());
    for (const std::size_t c : before) kept += std::ranges::count(after, c) > 0 ? 1 : 0;
    for (const std::size_t c : after) appeared += std::ranges::count(before, c) > 0 ? 0 : 1;
  }
};

/// Prompt and canvas as a block's first pass saw them (nothing of it committed), and as its last one left them.
struct BlockStates {
  std::vector<TokenId> warm, last;
};

std::vector<BlockStates> states_of(const std::vector<TokenId>& prompt, const Generation& answer, std::int32_t block,
                                   TokenId mask) {
  std::vector<BlockStates> states;
  const auto length = answer.ids.size();
  for (std::size_t begin = 0; begin + static_cast<std::size_t>(block) <= length;
       begin += static_cast<std::size_t>(block)) {
    const std::size_t end = begin + static_cast<std::size_t>(block);
    if (*std::min_element(answer.commit_step.begin() + static_cast<std::ptrdiff_t>(begin),
                          answer.commit_step.begin() + static_cast<std::ptrdiff_t>(end)) < 0)
      break;
    BlockStates one{prompt, prompt};
    for (std::size_t i = 0; i < length; ++i) {
      one.warm.push_back(i < begin ? answer.ids[i] : mask);
      one.last.push_back(i < end ? answer.ids[i] : mask);
    }
    states.push_back(std::move(one));
  }
  return states;
}

/// Of all blocks of a model's answers.
struct SubjectPersistence {
  Persistence sides[2];  ///< keys, values
  std::int64_t blocks = 0;
};

Expected<SubjectPersistence> persistence_of(const Lab& lab, const OutlierSubject& subject, std::size_t part,
                                            std::size_t parts) {
  NumericsText text = NumericsText::bf16();
  text.keys = text.values = "minmax";
  DLLM_TRY(const QuantFolder folder, QuantFolder::make());
  const std::string profile = folder.path() + "/factors.toml";
  DLLM_CHECK_OK(write_file(profile, text.toml()));
  DLLM_TRY(EvalSet items, read_eval_set(subject.items));
  items.items.resize(std::min(items.items.size(), static_cast<std::size_t>(subject.count)));
  DLLM_TRY(const LanguageModel answering, LanguageModel::load(subject.model));
  LoadOptions load;
  load.numerics = profile;
  DLLM_TRY(const BenchModel model, BenchModel::open(subject.model, load));
  DLLM_TRY(const ResolvedOptions resolved, answering.resolve({}));
  const std::optional<TokenId> mask = answering.special_tokens().mask;
  if (!mask) return Error{ErrorCode::kUsage, "the model has no mask token", subject.model, ""};
  SubjectPersistence found;
  for (std::size_t i = 0; i < items.items.size(); ++i) {
    DLLM_CHECK_OK(lab.begin_part(part * items.items.size() + i, parts * items.items.size()));
    DLLM_TRY(const auto prompt, answering.apply_template({{"user", items.items[i].prompt}}));
    DLLM_TRY(const Generation answer, answering.generate_ids(prompt, {}, {}, lab.stop()));
    for (const BlockStates& states : states_of(prompt, answer, resolved.block_length, *mask)) {
      DLLM_TRY(const Magnitudes warm, magnitudes_of(model, states.warm));
      DLLM_TRY(const Magnitudes last, magnitudes_of(model, states.last));
      const std::size_t heads = warm.size() / 2 / static_cast<std::size_t>(model.model->desc().layers);
      for (std::size_t h = 0; h < warm.size(); ++h) found.sides[h / heads % 2].add(warm[h], last[h]);
      ++found.blocks;
    }
  }
  return found;
}

}  // namespace

Expected<Figure> smoothing_alpha(Lab& lab) {
  const std::vector<OutlierSubject> subjects = outlier_subjects(lab.inputs(), 2, 6);
  Figure figure{.name = "smoothing-alpha",
                .title = "Four-bit K and V by the power of smoothing",
                .setting = fmt::format(
                    "K and V in MXINT4, everything else in BF16, against BF16 alone: masks in one canvas for each of "
                    "the first {} items of {} (embedded model) and {} of {} ({}). Alpha 0 only subtracts the centres.",
                    subjects[0].count, subjects[0].items, subjects[1].count, subjects[1].items, lab.inputs().model),
                .claim =
                    "smoothing wins back what four bits lose; the best power lies between 0 and 1 and depends on the "
                    "model.",
                .columns = {"model", "centre", "alpha", "KL, 0.001 nats", "+-", "same token %", "0.001 nats per token"},
                .x_name = "alpha",
                .y_name = "KL of predicted masks to BF16, 0.001 nats"};
  std::size_t part = 0;
  constexpr std::size_t kParts = 2 * (1 + 2 * std::size(kAlphas));
  for (const OutlierSubject& subject : subjects) {
    DLLM_TRY(const QuantFolder folder, QuantFolder::make());
    DLLM_TRY(const EvalSet items, read_eval_set(subject.items));
    DLLM_TRY(const LanguageModel first, open_in_numerics(subject.model, "bf16", folder));
    double plain = 0, least = 0;
    std::string best;
    const auto measure = [&](const char* centre, double alpha) -> Expected<double> {
      DLLM_CHECK_OK(lab.begin_part(part++, kParts));
      NumericsText text = NumericsText::bf16();
      text.key = text.value = "mxint4:32:ocp";
      text.keys = text.values = centre;
      text.alpha = alpha;
      DLLM_TRY(const LanguageModel model, open_in_numerics(subject.model, text.toml(), folder));
      DLLM_TRY(const Divergence d, mask_divergence(lab, first, model, items, subject.count));
      figure.rows.push_back({subject.name, centre, alpha, 1e3 * d.kl(), 1e3 * kNormal95 * d.kl_error(),
                             100 * d.top1_agreement(), 1e3 * d.negative_log_likelihood()});
      return 1e3 * d.kl();
    };
    DLLM_TRY(plain, measure("none", 1));
    figure.series.push_back({subject.name + ", none", {{0, plain}, {1, plain}}});
    for (const char* centre : {"mean", "minmax"}) {
      Figure::Series series{fmt::format("{}, {}", subject.name, centre), {}};
      for (const double alpha : kAlphas) {
        DLLM_TRY(const double kl, measure(centre, alpha));
        series.points.emplace_back(alpha, kl);
        if (best.empty() || kl < least) least = kl, best = fmt::format("{} with alpha {}", centre, alpha);
      }
      figure.series.push_back(std::move(series));
    }
    figure.verdict +=
        fmt::format("{}: KL {:.2f} thousandths of a nat without smoothing, {:.2f} with the best of ten ({}). ",
                    subject.name, plain, least, best);
  }
  figure.verdict += "Which is best was seen on these items: it is no recommendation.";
  return figure;
}

Expected<Figure> outlier_persistence(Lab& lab) {
  const std::vector<OutlierSubject> subjects = outlier_subjects(lab.inputs(), 10, 20);
  Figure figure{
      .name = "outlier-persistence",
      .title = "Whether channels with outliers remain the same",
      .setting = fmt::format(
          "Largest magnitudes of each channel of K (after RoPE) and V over prompt and canvas, in a full pass before a "
          "block's first commit and after its last one: all blocks of the answers to the first {} items of {} "
          "(embedded model) and {} of {} ({}), greedy, blocks of 32, in BF16. Outliers: channels above {} times the "
          "mean of their head.",
          subjects[0].count, subjects[0].items, subjects[1].count, subjects[1].items, lab.inputs().model, kOutlier),
      .claim =
          "outliers are 13 to 19 times the mean, and more than 70 % of their channels persist from the warm step to "
          "the refining ones.",
      .columns = {"model", "side", "blocks", "outliers %", "kept %", "new %", "largest over mean"},
      .x_name = "model",
      .y_name = "outlier channels that persist, %"};
  figure.series = {{"keys", {}}, {"values", {}}};
  for (const OutlierSubject& subject : subjects) {
    const auto part = static_cast<std::size_t>(&subject - subjects.data());
    DLLM_TRY(const SubjectPersistence found, persistence_of(lab, subject, part, subjects.size()));
    for (int side = 0; side < 2; ++side) {
      const Persistence& p = found.sides[side];
      const double kept = p.outliers > 0 ? 100 * p.kept / p.outliers : 0;
      figure.rows.push_back({subject.name, side == 0 ? "keys" : "values", found.blocks, 100 * p.outliers / p.channels,
                             kept, p.outliers > 0 ? 100 * p.appeared / p.outliers : 0, p.largest});
      figure.series[static_cast<std::size_t>(side)].points.emplace_back(static_cast<double>(part), kept);
      if (side == 0)
        figure.verdict += fmt::format(
            "{}: {:.0f} % of the outlier channels of K persist ({}), the largest is {:.1f} times its head's mean. ",
            subject.name, kept, kept > 70 ? "reproduced" : "not reproduced", p.largest);
    }
    figure.x_labels.push_back(subject.name);
  }
  figure.verdict.pop_back();
  return figure;
}

}  // namespace dllm::app
