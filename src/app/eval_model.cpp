#include "app/eval_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

Expected<TargetLikelihood> likelihood(const LanguageModel& model, const std::vector<ChatTurn>& turns,
                                      const std::string& target, const LikelihoodOptions& options, double cfg_scale,
                                      const std::stop_token& stop) {
  DLLM_TRY(std::vector<std::int32_t> ids, model.apply_template(turns));
  DLLM_TRY(const std::vector<std::int32_t> tokens, model.tokenize(target, /*special=*/false));
  const auto prompt = static_cast<std::int32_t>(ids.size());
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  TargetLikelihood result;
  result.tokens = static_cast<std::int32_t>(tokens.size());
  const auto score = [&](const std::vector<std::int32_t>& masked) -> Expected<std::vector<double>> {
    if (stop.stop_requested()) return Error{ErrorCode::kCancelled, "interrupted", "", ""};
    std::vector<std::int32_t> positions;
    for (const std::int32_t i : masked) positions.push_back(prompt + i);
    result.passes += cfg_scale != 0 ? 2 : 1;
    return model.masked_log_probs(ids, positions, cfg_scale, prompt);
  };
  const auto whole = [&]() -> Expected<double> {
    if (!model.autoregressive()) {
      DLLM_TRY(const LikelihoodEstimate estimate, estimate_likelihood(result.tokens, score, options));
      return estimate.log_likelihood;
    }
    std::vector<std::int32_t> all(tokens.size());
    std::iota(all.begin(), all.end(), 0);
    DLLM_TRY(const std::vector<double> logs, score(all));
    return std::accumulate(logs.begin(), logs.end(), 0.0);
  }();
  if (whole) {
    result.log_likelihood = *whole;
  } else if (whole.error().code == ErrorCode::kCancelled) {
    result.cancelled = true;
  } else {
    return whole.error();
  }
  return result;
}

}  // namespace

void EvalFlags::add(Flags& flags) {
  flags.add({.names = {"--format"},
             .value = "NAME",
             .help = "kind of the items",
             .default_text = "by their fields",
             .choices = task_kind_names(),
             .apply = into(format, task_kind_names())});
  flags.add({.names = {"--scoring"},
             .value = "NAME",
             .help = "judge generated answers, take the likeliest choice, or measure how likely the answers are",
             .default_text = "the kind's",
             .choices = {"generate", "choices", "likelihood"},
             .apply = into(scoring, {"generate", "choices", "likelihood"})});
  flags.add({.names = {"--task"}, .value = "NAME", .help = "items of this task only", .apply = into(task)});
  flags.add({.names = {"--limit"}, .value = "N", .help = "the first N items only", .apply = into(limit, 1, kMax)});
  flags.add({.names = {"--shots"},
             .value = "N",
             .help = "put the first N items with their solutions in front of the others",
             .apply = into(shots, 0, 1000)});
  flags.add({.names = {"--mc-samples"},
             .value = "N",
             .help = "masks per likelihood; 0: exact, for up to 12 tokens",
             .default_text = "128",
             .apply = into(samples, 0, 1 << 20)});
  flags.add({.names = {"--system-prompt", "-sys"},
             .value = "TEXT",
             .help = "system message in front of each prompt",
             .apply = into(system)});
  flags.add({.names = {"--run-code"},
             .help = "run the model's programs: no network, limits, but this file system (docs/evaluating.md)",
             .apply = into(judging.run_code)});
  flags.add({.names = {"--code-seconds"},
             .value = "X",
             .help = "time limit of a program",
             .default_text = "10",
             .apply = into(judging.seconds, 0.01, 3600)});
}

Expected<EvalSet> EvalFlags::read(const std::string& path) const {
  DLLM_TRY(EvalSet set, read_eval_set(path, format));
  if (!task.empty()) {
    std::set<std::string> names;
    for (const EvalItem& item : set.items) names.insert(item.task);
    if (!names.contains(task))
      return Error{ErrorCode::kUsage, fmt::format("the file has no task '{}'", task), "--task",
                   choice_hint(task, {names.begin(), names.end()})};
    std::erase_if(set.items, [&](const EvalItem& item) { return item.task != task; });
  }
  DLLM_CHECK_OK(use_shots(set, shots));
  if (limit > 0) set.items.resize(std::min(set.items.size(), static_cast<std::size_t>(limit)));
  return set;
}

Scoring EvalFlags::scoring_of(const EvalSet& set) const {
  for (const Scoring s : {Scoring::kGenerate, Scoring::kChoices, Scoring::kLikelihood})
    if (scoring == scoring_name(s)) return s;
  return set.kind->scoring;
}

std::vector<ChatTurn> EvalFlags::turns(const std::string& prompt) const {
  if (system.empty()) return {{"user", prompt}};
  return {{"system", system}, {"user", prompt}};
}

EvalModel EvalFlags::bind(const LanguageModel& model, const GenerateOptions& options, bool raw,
                          std::stop_token stop) const {
  EvalModel bound;
  bound.answer = [this, &model, &options, stop](const std::string& prompt) {
    return model.generate(turns(prompt), options, {}, stop);
  };
  bound.likelihood = [this, &model, &options, raw, stop](const std::string& prompt, const std::string& target,
                                                         std::uint32_t item) {
    // Without a template a continuation stands in the same line, as the harness has it.
    const std::string continuation =
        raw && !prompt.empty() && prompt.back() != ' ' && prompt.back() != '\n' ? " " + target : target;
    return likelihood(model, turns(prompt), continuation, {.samples = samples, .rng = {options.seed, item}},
                      options.cfg_scale, stop);
  };
  return bound;
}

}  // namespace dllm::app
