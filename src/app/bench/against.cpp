// Diffusion against autoregression: the same weights on the same machine, decoded in both ways.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/bench/bench.h"
#include "app/bench/causal_twin.h"
#include "app/bench/stats.h"
#include "app/bench/workload.h"
#include "app/cli/options.h"
#include "base/try.h"
#include "engine/generate.h"
#include "engine/method.h"
#include "engine/presets.h"
#include "engine/replay.h"
#include "engine/resolve.h"
#include "engine/trace.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

/// Totals over the answers of a workload.
struct Played {
  GenerateStats sum;
  double first_seconds = 0;  ///< until the first token of an answer was final
};

/// One row of the table, before measurement.
struct Contest {
  std::string method;   ///< "autoregressive", or the preset
  std::string pattern;  ///< "1 per pass", "recorded"
  BenchRequests work;
};

class Against {
 public:
  Against(BenchModel& model, const BenchOptions& options, const BenchWatch& watch, const BenchSink& sink)
      : model_(model), options_(options), watch_(watch), sink_(sink), twin_(model.backend()) {}

  Expected<void> run(std::int32_t prompt_tokens) {
    prompt_tokens_ = prompt_tokens;
    length_ = options_.generate.length.value_or(128);
    autoregressive_ = 0;
    DLLM_CHECK_OK(autoregression());
    for (const Preset& preset : presets()) {
      if (!options_.generate.preset.empty() && preset.info.name != options_.generate.preset) continue;
      if (preset.fits(desc())) DLLM_CHECK_OK(diffusion(preset.info.name));
    }
    return recordings();
  }

 private:
  const ModelDesc& desc() const { return model_.model->desc(); }

  Expected<void> autoregression() {
    GenerateOptions options;
    options.length = length_;
    options.exact_length = true;
    options.seed = options_.generate.seed;
    Contest contest{"autoregressive", "1 per pass", {}};
    DLLM_TRY(contest.work.options, resolve_options(options, twin_.desc()));
    contest.work.prompts = {bench_prompt(desc(), contest.work.options.seed, 0, prompt_tokens_)};
    return measure(contest, twin_);
  }

  /// Fixed numbers of tokens per pass. A preset that revises tokens cannot be fixed, and is left out.
  Expected<void> diffusion(const std::string& preset) {
    GenerateOptions options;
    options.preset = preset;
    options.length = length_;
    options.block_length = options_.generate.block_length;
    options.exact_length = true;
    options.seed = options_.generate.seed;
    DLLM_TRY(const ResolvedOptions resolved, resolve_options(options, desc()));
    DLLM_TRY(const Method method, make_method(resolved, desc()));
    if (method.decoder->revises()) return {};
    for (const std::int32_t per_pass : options_.tokens_per_pass) {
      Contest contest{preset, fmt::format("{} per pass", per_pass), {}};
      contest.work.options = resolved;
      contest.work.prompts = {bench_prompt(desc(), resolved.seed, 0, prompt_tokens_)};
      contest.work.replays = {even_schedule(length_, resolved.block_length, per_pass)};
      DLLM_CHECK_OK(measure(contest, model_.backend()));
    }
    return {};
  }

  Expected<void> recordings() {
    for (const std::string& file : options_.replays) {
      DLLM_TRY(BenchRequests work,
               recorded_workload(desc(), {file, options_.answers, length_, prompt_tokens_, options_.generate.seed}));
      const std::string preset = work.preset.empty() ? "as recorded" : work.preset;
      const Contest contest{preset, "recorded", std::move(work)};
      DLLM_CHECK_OK(measure(contest, model_.backend()));
    }
    return {};
  }

  Expected<void> measure(const Contest& contest, Backend& backend) {
    if (watch_.progress)
      watch_.progress(fmt::format("{}, {}: {} tokens after a prompt of {}", contest.method, contest.pattern, length_,
                                  prompt_tokens_));
    DLLM_TRY(const AnswerMeans means, answer_means(model_.running, contest.work.options, watch_.stop));
    Played played;
    std::vector<double> firsts;
    const auto body = [&]() -> Expected<void> {
      DLLM_TRY(played, play(contest.work, means.on(backend)));
      firsts.push_back(played.first_seconds);
      return {};
    };
    DLLM_TRY(const auto samples, repeat(options_, watch_, body, [&firsts] { firsts.clear(); }));
    sink_(record(contest, played, samples, firsts));
    return {};
  }

  Expected<Played> play(const BenchRequests& work, const AnswerHost& host) const {
    Played sum;
    for (std::size_t i = 0; i < work.prompts.size(); ++i) {
      const CommitSchedule* const replay = work.replays.empty() ? nullptr : &work.replays[i];
      const auto start = std::chrono::steady_clock::now();
      const auto elapsed = [start] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      };
      std::optional<double> first;
      const SettledCallback settled = [&](Position positions) {
        if (!first && positions > 0) first = elapsed();
      };
      DLLM_TRY(const Generation answer, generate(host, work.prompts[i], work.options,
                                                 {.on_settled = settled, .stop = watch_.stop, .replay = replay}));
      if (answer.finish == FinishReason::kCancelled)
        return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""};
      if (replay) DLLM_CHECK_OK(check_replayed(answer, *replay));
      sum.first_seconds += first.value_or(elapsed());
      sum.sum.answer_tokens += answer.stats.answer_tokens;
      sum.sum.nfe += answer.stats.nfe;
      sum.sum.rows_forwarded += answer.stats.rows_forwarded;
      sum.sum.rows_scored += answer.stats.rows_scored;
    }
    return sum;
  }

  Json record(const Contest& contest, const Played& played, const std::vector<double>& samples,
              const std::vector<double>& firsts) {
    const GenerateStats& stats = played.sum;
    const auto answers = static_cast<double>(contest.work.prompts.size());
    const double rate = stats.answer_tokens / summarize(samples).median;
    if (autoregressive_ == 0) autoregressive_ = rate;
    Json json = {{"test", "against-autoregression"}};
    json.update(model_.describe());
    json["activations"] = options_.load.activations.empty() ? "int8" : options_.load.activations;
    json["method"] = contest.method;
    json["pattern"] = contest.pattern;
    json["seed"] = contest.work.options.seed;
    json["requests"] = contest.work.prompts.size();
    json["prompt_tokens"] = prompt_tokens_;
    json["options"] = options_json(contest.work.options);
    if (!contest.work.file.empty()) json["replay"] = replay_json(contest.work);
    json["repetitions"] = samples.size();
    json["ms"] = summary_json(samples, 1e3 / answers);
    json["first_token_ms"] = summary_json(firsts, 1e3 / answers);
    json["answer_tokens"] = stats.answer_tokens;
    json["nfe"] = stats.nfe;
    json["rows_forwarded"] = stats.rows_forwarded;
    json["rows_scored"] = stats.rows_scored;
    json["tokens_per_forward"] = static_cast<double>(stats.answer_tokens) / stats.nfe;
    json["tokens_per_second"] = rate;
    json["times_autoregression"] = rate / autoregressive_;
    return json;
  }

  BenchModel& model_;
  const BenchOptions& options_;
  const BenchWatch& watch_;
  const BenchSink& sink_;
  CausalTwin twin_;
  std::int32_t prompt_tokens_ = 0, length_ = 0;
  double autoregressive_ = 0;  ///< tokens per second
};

}  // namespace

Expected<void> bench_against_autoregression(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                                            const BenchSink& sink) {
  if (!model.model->desc().mask)
    return Error{ErrorCode::kUsage, "the model fills no masks: there is nothing to compare", model.path, ""};
  Against against(model, options, watch, sink);
  const std::vector<std::int32_t> prompts = options.prompts.empty() ? std::vector{128} : options.prompts;
  for (const std::int32_t prompt : prompts) DLLM_CHECK_OK(against.run(prompt));
  return {};
}

}  // namespace dllm::app
