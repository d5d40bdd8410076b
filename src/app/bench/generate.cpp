#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/bench/bench.h"
#include "app/bench/host.h"
#include "app/bench/stats.h"
#include "app/cli/options.h"
#include "app/cli/report.h"
#include "base/hash.h"
#include "base/try.h"
#include "engine/generate.h"
#include "engine/latency_file.h"
#include "engine/method.h"
#include "engine/resolve.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

/// What one run of all requests gave.
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
    sum.rows_forwarded += one.stats.rows_forwarded;
    sum.rows_scored += one.stats.rows_scored;
    answers.hash = generations.size() == 1 ? one.hash : answers.hash * Fnv1a::kPrime ^ one.hash;
  }
  return answers;
}

class GenerateBench {
 public:
  GenerateBench(BenchModel& model, const BenchOptions& options, const ResolvedOptions& resolved,
                const BenchWatch& watch)
      : model_(model), options_(options), resolved_(resolved), watch_(watch) {}

  Expected<void> prepare() {
    if (const std::string name = latency_name(resolved_); !name.empty()) {
      DLLM_TRY(latency_, requested_latency(name, model_.backend(), *model_.running.latency, Log(), watch_.stop));
    }
    return {};
  }

  /// As many requests as the largest batch has, in every batch: what they cost can be compared, and must be equal.
  Expected<void> run(std::int32_t prompt_tokens, const BenchSink& sink) {
    const std::int32_t requests = *std::max_element(options_.batches.begin(), options_.batches.end());
    std::vector<std::vector<TokenId>> prompts(static_cast<std::size_t>(requests));
    for (std::size_t i = 0; i < prompts.size(); ++i)
      for (Position p = 0; p < prompt_tokens; ++p)
        prompts[i].push_back(bench_token(model_.model->desc(), resolved_.seed + i, p));
    std::optional<Answers> answers;
    for (const std::int32_t batch : options_.batches) {
      if (watch_.progress)
        watch_.progress(fmt::format("{} x {} tokens after a prompt of {}, batch {}, {} threads", requests,
                                    resolved_.length, prompt_tokens, batch, model_.running.threads));
      const auto body = [&]() -> Expected<void> {
        DLLM_TRY(const auto generations, generate_batch(model_.backend(), nullptr, prompts, resolved_,
                                                        latency_ ? &*latency_ : nullptr, batch, {}, watch_.stop));
        DLLM_TRY(const Answers these, sum_up(generations));
        if (answers && these.hash != answers->hash)
          return Error{ErrorCode::kMismatch, "two runs of one seed gave different tokens", model_.path,
                       "this is a bug"};
        answers = these;
        return {};
      };
      DLLM_TRY(const auto samples, repeat(options_, watch_, body));
      sink(record(prompt_tokens, batch, requests, *answers, samples));
    }
    return {};
  }

 private:
  Json record(std::int32_t prompt_tokens, std::int32_t batch, std::int32_t requests, const Answers& answers,
              const std::vector<double>& samples) const {
    const double median = summarize(samples).median;
    const GenerateStats& stats = answers.sum;
    Json json = {{"test", "generate"}};
    json.update(model_.describe());
    json["activations"] = options_.load.activations.empty() ? "int8" : options_.load.activations;
    json["seed"] = resolved_.seed;
    json["batch"] = batch;
    json["requests"] = requests;
    json["prompt_tokens"] = prompt_tokens;
    json["options"] = options_json(resolved_);
    json["repetitions"] = samples.size();
    json["ms"] = summary_json(samples, 1e3);
    json["answer_tokens"] = stats.answer_tokens;
    json["steps"] = stats.steps;
    json["nfe"] = stats.nfe;
    json["rows_forwarded"] = stats.rows_forwarded;
    json["rows_scored"] = stats.rows_scored;
    json["tokens_per_second"] = stats.answer_tokens / median;
    json["ms_per_step"] = stats.steps > 0 ? median * 1e3 / stats.steps : 0;
    json["ms_per_forward"] = stats.nfe > 0 ? median * 1e3 / stats.nfe : 0;
    json["tokens_per_step"] = stats.steps > 0 ? static_cast<double>(stats.committed_tokens) / stats.steps : 0;
    json["hash"] = hash_text(answers.hash);
    json["peak_rss_bytes"] = peak_resident_bytes();
    return json;
  }

  BenchModel& model_;
  const BenchOptions& options_;
  const ResolvedOptions& resolved_;
  const BenchWatch& watch_;
  std::optional<LatencyTable> latency_;
};

}  // namespace

Expected<void> bench_generate(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                              const BenchSink& sink) {
  DLLM_TRY(const ResolvedOptions resolved, resolve_options(options.generate, model.model->desc()));
  GenerateBench bench(model, options, resolved, watch);
  DLLM_CHECK_OK(bench.prepare());
  for (const std::int32_t prompt : options.prompts) DLLM_CHECK_OK(bench.run(prompt, sink));
  return {};
}

}  // namespace dllm::app
