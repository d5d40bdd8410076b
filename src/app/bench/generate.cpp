#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/bench/bench.h"
#include "app/bench/host.h"
#include "app/bench/stats.h"
#include "app/bench/workload.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "base/hash.h"
#include "base/try.h"
#include "engine/generate.h"
#include "engine/replay.h"
#include "engine/resolve.h"
#include "engine/trace.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

/// The result of running all requests once.
struct Answers {
  GenerateStats sum;       ///< over the requests
  std::uint64_t hash = 0;  ///< of one request's tokens, or of all hashes
};

Expected<Answers> sum_up(const std::vector<Generation>& generations) {
  Answers answers;
  for (const Generation& one : generations) {
    if (one.finish == FinishReason::kCancelled)
      return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""};
    GenerateStats& sum = answers.sum;
    sum.answer_tokens += one.stats.answer_tokens;
    sum.committed_tokens += one.stats.committed_tokens;
    sum.steps += one.stats.steps;
    sum.nfe += one.stats.nfe;
    sum.second_passes += one.stats.second_passes;
    sum.rows_forwarded += one.stats.rows_forwarded;
    sum.rows_scored += one.stats.rows_scored;
    sum.rounds += one.stats.rounds;
    sum.round_tokens += one.stats.round_tokens;
    answers.hash = generations.size() == 1 ? one.hash : answers.hash * Fnv1a::kPrime ^ one.hash;
  }
  return answers;
}

class GenerateBench {
 public:
  GenerateBench(BenchModel& model, const BenchOptions& options, BenchRequests work, const BenchWatch& watch)
      : model_(model), options_(options), work_(std::move(work)), watch_(watch) {}

  /// The same requests in every batch, so that costs can be compared and results must be equal.
  Expected<void> run(const BenchSink& sink) {
    DLLM_TRY(const AnswerMeans means, answer_means(model_.running, work_.options, watch_.stop));
    std::optional<Answers> answers;
    for (const std::int32_t batch : options_.batches) {
      if (watch_.progress)
        watch_.progress(fmt::format("{} x {} tokens after a prompt of {}, batch {}, {} threads", work_.prompts.size(),
                                    work_.options.length, prompt_tokens(), batch, model_.running.threads));
      const auto body = [&]() -> Expected<void> {
        DLLM_TRY(const auto generations,
                 generate_batch(means.on(model_.backend()), work_.prompts, work_.options,
                                {.batch = batch, .stop = watch_.stop, .replays = work_.replays}));
        DLLM_TRY(const Answers these, sum_up(generations));
        for (std::size_t i = 0; i < work_.replays.size(); ++i)
          DLLM_CHECK_OK(check_replayed(generations[i], work_.replays[i]));
        if (answers && these.hash != answers->hash)
          return Error{ErrorCode::kMismatch, "two runs of one seed gave different tokens", model_.path,
                       "this is a bug"};
        answers = these;
        return {};
      };
      DLLM_TRY(const auto samples, repeat(options_, watch_, body));
      sink(record(batch, *answers, samples));
    }
    return {};
  }

 private:
  /// The mean over a recording.
  std::size_t prompt_tokens() const {
    std::size_t sum = 0;
    for (const auto& prompt : work_.prompts) sum += prompt.size();
    return sum / work_.prompts.size();
  }

  Json record(std::int32_t batch, const Answers& answers, const std::vector<double>& samples) const {
    const double median = summarize(samples).median;
    const GenerateStats& stats = answers.sum;
    Json json = {{"test", "generate"}};
    json.update(model_.describe());
    json["activations"] = options_.load.activations.empty() ? "int8" : options_.load.activations;
    json["seed"] = work_.options.seed;
    json["batch"] = batch;
    json["requests"] = work_.prompts.size();
    json["prompt_tokens"] = prompt_tokens();
    json["options"] = options_json(work_.options);
    if (!work_.file.empty()) json["replay"] = replay_json(work_);
    json["repetitions"] = samples.size();
    json["ms"] = summary_json(samples, 1e3);
    json["answer_tokens"] = stats.answer_tokens;
    json["steps"] = stats.steps;
    json["nfe"] = stats.nfe;
    json["second_passes"] = stats.second_passes;
    json["rows_forwarded"] = stats.rows_forwarded;
    json["rows_scored"] = stats.rows_scored;
    json["tokens_per_second"] = stats.answer_tokens / median;
    json["ms_per_step"] = stats.steps > 0 ? median * 1e3 / stats.steps : 0;
    json["ms_per_forward"] = stats.nfe > 0 ? median * 1e3 / stats.nfe : 0;
    json["tokens_per_step"] = stats.steps > 0 ? static_cast<double>(stats.committed_tokens) / stats.steps : 0;
    if (stats.rounds > 0) json["tokens_per_round"] = static_cast<double>(stats.round_tokens) / stats.rounds;
    json["hash"] = hash_text(answers.hash);
    json["peak_rss_bytes"] = peak_resident_bytes();
    return json;
  }

  BenchModel& model_;
  const BenchOptions& options_;
  const BenchRequests work_;
  const BenchWatch& watch_;
};

}  // namespace

Expected<void> bench_generate(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                              const BenchSink& sink) {
  const ModelDesc& desc = model.model->desc();
  for (const std::string& file : options.replays)
    for (const std::int32_t tokens : options.prompts.empty() ? std::vector{0} : options.prompts) {
      DLLM_TRY(BenchRequests work, recorded_workload(desc, {file, options.answers, options.generate.length.value_or(0),
                                                            tokens, options.generate.seed}));
      DLLM_CHECK_OK(GenerateBench(model, options, std::move(work), watch).run(sink));
    }
  if (!options.replays.empty()) return {};
  GenerateOptions generate = options.generate;
  if (!generate.length) generate.length = ResolvedOptions().length;  // whatever the model's answers need
  DLLM_TRY(const ResolvedOptions resolved, resolve_options(generate, desc));
  const std::int32_t requests = *std::max_element(options.batches.begin(), options.batches.end());
  for (const std::int32_t tokens : options.prompts.empty() ? std::vector{32} : options.prompts) {
    BenchRequests work;
    work.options = resolved;
    for (std::int32_t i = 0; i < requests; ++i)
      work.prompts.push_back(bench_prompt(desc, resolved.seed, static_cast<std::size_t>(i), tokens));
    DLLM_CHECK_OK(GenerateBench(model, options, std::move(work), watch).run(sink));
  }
  return {};
}

}  // namespace dllm::app
