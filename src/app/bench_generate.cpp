#include "engine/generate.h"
#include "engine/latency_file.h"
#include "engine/method.h"

#include <fmt/format.h>

#include "app/bench.h"
#include "app/bench_host.h"
#include "app/bench_stats.h"
#include "app/options.h"
#include "app/report.h"
#include "base/try.h"
#include "engine/method.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

Expected<Json> bench_one(BenchModel& model, const BenchOptions& options, const GenerateOptions& resolved,
                         std::int32_t prompt_tokens, const BenchWatch& watch) {
  std::vector<TokenId> prompt;
  for (Position p = 0; p < prompt_tokens; ++p) prompt.push_back(bench_token(model.model->desc(), resolved.seed, p));
  if (watch.progress)
    watch.progress(fmt::format("{} tokens after a prompt of {}, {} threads", resolved.length, prompt_tokens,
                               model.backend->threads()));
  std::optional<LatencyTable> latency;
  if (const std::string name = latency_name(resolved); !name.empty()) {
    DLLM_TRY(latency, requested_latency(name, *model.backend, latency_key(model.path, options.load, *model.backend),
                                        Log(), watch.stop));
  }
  Generation last;
  bool repeated = false;
  const auto body = [&]() -> Expected<void> {
    DLLM_TRY(Generation result,
             generate(*model.backend, nullptr, prompt, resolved, latency ? &*latency : nullptr, {}, watch.stop));
    if (result.finish == FinishReason::kCancelled)
      return Error{ErrorCode::kCancelled, "the benchmark was interrupted", "", ""};
    if (repeated && result.hash != last.hash)
      return Error{ErrorCode::kMismatch, "two runs of one seed gave different tokens", model.path, "this is a bug"};
    repeated = true;
    last = std::move(result);
    return {};
  };
  DLLM_TRY(const auto samples, repeat(options, watch, body));
  const double median = summarize(samples).median;
  const GenerateStats& stats = last.stats;
  Json json = {{"test", "generate"}};
  json.update(model.describe());
  json["activations"] = options.load.activations.empty() ? "int8" : options.load.activations;
  json["seed"] = resolved.seed;
  json["prompt_tokens"] = prompt_tokens;
  json["options"] = options_json(resolved);
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
  json["hash"] = hash_text(last.hash);
  json["peak_rss_bytes"] = peak_resident_bytes();
  return json;
}

}  // namespace

Expected<void> bench_generate(BenchModel& model, const BenchOptions& options, const BenchWatch& watch,
                              const BenchSink& sink) {
  DLLM_TRY(const GenerateOptions resolved, resolve_options(options.generate, model.model->desc()));
  for (const std::int32_t prompt : options.prompts) {
    DLLM_TRY(const Json record, bench_one(model, options, resolved, prompt, watch));
    sink(record);
  }
  return {};
}

}  // namespace dllm::app
