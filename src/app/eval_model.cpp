#include "app/eval_model.h"

#include <fmt/format.h>

#include <limits>

#include "base/try.h"

namespace dllm::app {
namespace {

constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();

/// The state of one target's likelihood.
struct Target {
  std::vector<std::int32_t> ids;  ///< prompt and target
  LikelihoodPlan plan;
  std::vector<double> values = {};  ///< by sample
};

/// The likelihoods of an item's targets, with all masks scored `batch` at a time.
class LikelihoodRun {
 public:
  LikelihoodRun(const LanguageModel& model, double cfg_scale, std::int32_t batch, std::stop_token stop)
      : model_(model), cfg_scale_(cfg_scale), batch_(static_cast<std::size_t>(batch)), stop_(std::move(stop)) {}

  Expected<void> add(const std::vector<std::int32_t>& prompt, const std::string& target,
                     const LikelihoodOptions& options) {
    DLLM_TRY(const std::vector<std::int32_t> tokens, model_.tokenize(target, /*special=*/false));
    prompt_ = static_cast<std::int32_t>(prompt.size());
    const auto length = static_cast<std::int32_t>(tokens.size());
    LikelihoodPlan plan = LikelihoodPlan::whole(length);
    if (!model_.autoregressive()) {
      DLLM_TRY(plan, LikelihoodPlan::sampled(length, options));
    }
    std::vector<std::int32_t> ids = prompt;
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    targets_.push_back({std::move(ids), plan});
    return {};
  }

  Expected<std::vector<TargetLikelihood>> run() {
    for (std::size_t t = 0; t < targets_.size(); ++t)
      for (std::int32_t sample = 0; sample < targets_[t].plan.samples(); ++sample) {
        if (stop_.stop_requested()) return std::vector<TargetLikelihood>{{.cancelled = true}};
        texts_.push_back({targets_[t].ids, targets_[t].plan.mask(sample), prompt_});
        for (std::int32_t& position : texts_.back().masked) position += prompt_;
        owners_.push_back(t);
        if (texts_.size() == batch_) DLLM_CHECK_OK(score());
      }
    DLLM_CHECK_OK(score());
    std::vector<TargetLikelihood> results;
    for (const Target& target : targets_)
      results.push_back({.log_likelihood = target.plan.combine(target.values).log_likelihood,
                         .tokens = static_cast<std::int32_t>(target.ids.size()) - prompt_,
                         .passes = target.plan.samples() * (cfg_scale_ != 0 ? 2 : 1)});
    return results;
  }

 private:
  Expected<void> score() {
    DLLM_TRY(const auto logs, model_.masked_log_probs_batch(texts_, cfg_scale_));
    for (std::size_t i = 0; i < logs.size(); ++i)
      targets_[owners_[i]].values.push_back(targets_[owners_[i]].plan.value(logs[i]));
    texts_.clear();
    owners_.clear();
    return {};
  }

  const LanguageModel& model_;
  double cfg_scale_;
  std::size_t batch_;
  std::stop_token stop_;
  std::int32_t prompt_ = 0;
  std::vector<Target> targets_;
  std::vector<MaskedText> texts_;    ///< of the pass being assembled
  std::vector<std::size_t> owners_;  ///< their targets
};

}  // namespace

void EvalFlags::add(Flags& flags) {
  flags.add({.names = {"--format"},
             .value = "NAME",
             .help = "kind of the items",
             .default_text = "by their fields",
             .choices = task_kind_names(),
             .apply = into(format, task_kind_names()),
             .rare = true});
  flags.add({.names = {"--scoring"},
             .value = "NAME",
             .help = "judge generated answers, take the likeliest choice, or measure how likely the answers are",
             .default_text = "the kind's",
             .choices = {"generate", "choices", "likelihood"},
             .apply = into(scoring, {"generate", "choices", "likelihood"}),
             .rare = true});
  flags.add({.names = {"--task"}, .value = "NAME", .help = "only items of this task", .apply = into(task)});
  flags.add({.names = {"--offset"},
             .value = "N",
             .help = "leave the first N items out",
             .apply = into(offset, 0, kMax),
             .rare = true});
  flags.add({.names = {"--limit"}, .value = "N", .help = "only the first N items", .apply = into(limit, 1, kMax)});
  flags.add({.names = {"--shots"},
             .value = "N",
             .help = "use the first N items and their solutions as examples for the others",
             .apply = into(shots, 0, 1000),
             .rare = true});
  flags.add({.names = {"--mc-samples"},
             .value = "N",
             .help = "masks per likelihood; 0: exact, for up to 12 tokens",
             .default_text = "128",
             .apply = into(samples, 0, 1 << 20),
             .rare = true});
  flags.add({.names = {"--system-prompt", "-sys"},
             .value = "TEXT",
             .help = "system message before each prompt",
             .apply = into(system),
             .rare = true});
  flags.add({.names = {"--run-code"},
             .help = "run the model's programs in a sandbox; --run-code=unsafe: without a sandbox "
                     "(docs/guide/evaluating.md)",
             .apply = [this](const std::string& value) -> Expected<void> {
               const std::optional<bool> allowed = value == "unsafe" ? std::optional(true) : parse_bool(value);
               if (!allowed)
                 return bad_value(fmt::format("'{}' is unknown", value), "--run-code, or --run-code=unsafe");
               judging.run_code = value == "unsafe" ? RunCode::kUnsafe : *allowed ? RunCode::kSandboxed : RunCode::kNo;
               return {};
             }});
  flags.add({.names = {"--code-seconds"},
             .value = "X",
             .help = "time limit of a program",
             .default_text = "10",
             .apply = into(judging.seconds, 0.01, 3600),
             .rare = true});
}

Expected<EvalSet> EvalFlags::read(const std::string& path) const {
  DLLM_TRY(EvalSet set, read_eval_set(path, format));
  DLLM_CHECK_OK(choose_items(set, {task, shots, offset, limit}));
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
  bound.likelihoods = [this, &model, &options, raw, stop](
                          const std::string& prompt, const std::vector<std::string>& targets,
                          std::uint32_t item) -> Expected<std::vector<TargetLikelihood>> {
    DLLM_TRY(const std::vector<std::int32_t> ids, model.apply_template(turns(prompt)));
    // Without a template a continuation is on the same line, as in the harness.
    const bool joined = raw && !prompt.empty() && prompt.back() != ' ' && prompt.back() != '\n';
    LikelihoodRun run(model, options.cfg_scale.value_or(0), batch, stop);
    for (const std::string& target : targets)
      DLLM_CHECK_OK(
          run.add(ids, joined ? " " + target : target, {.samples = samples, .rng = {options.seed.value_or(0), item}}));
    return run.run();
  };
  return bound;
}

}  // namespace dllm::app
